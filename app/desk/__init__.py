"""What the person does with books, questions and models, and what stands on the page. No HTML, no Gradio."""
