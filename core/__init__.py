"""TriForce Chat's runtime: documents in, a lossless token stream out. Knows nothing of Gradio or of the
app.
"""
