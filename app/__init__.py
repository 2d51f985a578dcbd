"""The desktop app: the only package that imports Gradio."""
