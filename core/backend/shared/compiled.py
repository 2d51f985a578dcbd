"""Facts about short passes and the compiled kernels that a plan rests on. No torch."""

# names of those that may be refused by a card or a CPU, by which that is kept; attention to numbers and
# products with rounded inputs are compiled for the CPU alone
PRODUCTS, CODED_KV, ATTENTION = "products with codes", "attention over codes", "attention"
COARSE = "products with rounded inputs"
OLDEST = (8, 0)  # compute capability they are compiled for
DTYPES = ("bfloat16", "float16")
HEAD_DIMS = (64, 128)  # of attention
# A verification has up to 33 rows. On a CPU each row of a pass of so many has the bits that it has alone.
SHORT_PASS_ROWS = 40
ROW_TILE = 64  # rows of all query heads of a KV head that one program of a card's attention takes at most
INPUTS_STEP = 16  # a product with codes takes as long for one input as for so many
