"""What both backends compute with: quantized weights, rows of KV caches, merged attention."""
