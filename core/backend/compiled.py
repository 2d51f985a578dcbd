"""Facts about the kernels compiled for cards that a plan rests on. No torch."""

# names of those that may be refused by a card, by which that is kept
PRODUCTS, CODED_KV = "products with codes", "attention over codes"
OLDEST = (8, 0)  # compute capability they are compiled for
DTYPES = ("bfloat16", "float16")
HEAD_DIMS = (64, 128)  # of attention
INPUTS_STEP = 16  # a product with codes takes as long for one input as for so many
