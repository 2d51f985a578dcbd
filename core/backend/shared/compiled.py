"""Facts about short passes and the compiled kernels that a plan rests on. No torch."""

# names of those that may be refused by a card or a CPU, by which that is kept; attention to numbers and
# products with rounded inputs may be by a CPU alone
PRODUCTS, CODED_KV, ATTENTION = "products with codes", "attention over codes", "attention"
COARSE, DELTA = "products with rounded inputs", "the gated delta rule"
OLDEST = (8, 0)  # compute capability they are compiled for
DTYPES = ("bfloat16", "float16")
HEAD_DIMS = (64, 128, 256, 512)  # of attention on a card,
CPU_HEAD_DIMS = (64, 128, 256, 512)  # and on a CPU
# A verification has up to 33 rows. On a CPU each row of a pass of so many has the bits that it has alone.
SHORT_PASS_ROWS = 40
# rows of all query heads of a KV head that one program of a card's attention takes at most, by heads' size
ROW_TILES = {64: 64, 128: 64, 256: 64, 512: 16}
INPUTS_STEP = 16  # a product with codes takes as long for one input as for so many
