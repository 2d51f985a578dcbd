"""Facts about the kernels compiled for cards that a plan rests on. No torch."""

PRODUCTS = "products with codes"  # their names, by which a card's refusal is kept
OLDEST = (8, 0)  # compute capability they are compiled for
DTYPES = ("bfloat16", "float16")
INPUTS_STEP = 16  # a product with codes takes as long for one input as for so many
