"""Plain instructions, and what the model itself answers to them before it is taught: so that it can still
chat afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from core.conversation.reading import ReadingStyle
from core.text.tokenizer import Tokenizer

_SUBJECTS = (
    "the moon", "a rainbow", "bread", "photosynthesis", "a lighthouse", "chess", "the French Revolution",
    "a good night's sleep", "gravity", "a volcano", "honey bees", "the printing press", "a novel", "winter",
)  # fmt: skip
_FORMS = (
    "What is {subject}?",
    "Explain {subject} in simple words.",
    "Tell me three facts about {subject}.",
    "Write a short poem about {subject}.",
    "Write two sentences about {subject}.",
    "Why do people care about {subject}?",
    "Give me a title for a story about {subject}.",
)
_OTHERS = (
    "Hello!", "Hi, who are you?", "Thank you.", "Good morning.", "What can you do?", "How are you today?",
    "Can you help me with my homework?", "Give me a tip for learning a language.", "What is 7 plus 5?",
    "Name five fruits.", "What is the capital of France?",
    "Write a polite letter to a neighbour about noise.",
    "How do I boil an egg?", "List three ways to save money.", "What should I read next?",
    "Rewrite this sentence politely: Give me the book.", "What is the opposite of cold?",
    "Translate 'good night' into Spanish.", "Write a short story about a cat that could talk.",
    "How can I become a better reader?", "Explain what a metaphor is and give an example.",
    "What is the difference between a novel and a short story?", "Who wrote Romeo and Juliet?",
    "Summarise the idea of a fable.", "Give me advice for a job interview.", "Tell me a joke.",
)  # fmt: skip
INSTRUCTIONS = (*_OTHERS, *(form.format(subject=subject) for subject in _SUBJECTS for form in _FORMS))
_ANSWER_TOKENS = 120
_AT_ONCE = 31


def greedy_answers(
    folder: Path, style: ReadingStyle, tokenizer: Tokenizer, progress: Callable[[float], None]
) -> Iterator[tuple[str, str, bool]]:
    """(instruction, answer, whether it came to its end), greedily with the style's repetition penalty."""
    from core.training.target import in_transformers

    model = in_transformers(folder, torch.bfloat16)
    frame = tokenizer.frame(style.system)
    for start in range(0, len(INSTRUCTIONS), _AT_ONCE):
        progress(start / len(INSTRUCTIONS))
        asked = INSTRUCTIONS[start : start + _AT_ONCE]
        rows = [[*frame.opening, *tokenizer.encode(one), *frame.ask] for one in asked]
        longest, end = max(map(len, rows)), frame.bridge[0]
        ids = torch.tensor([[end] * (longest - len(row)) + row for row in rows])
        seen = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
        written = model.generate(
            ids,
            attention_mask=seen,
            max_new_tokens=_ANSWER_TOKENS,
            do_sample=False,
            repetition_penalty=style.repetition_penalty,
            pad_token_id=end,
            eos_token_id=end,
        )
        for one, row in zip(asked, written[:, longest:].tolist(), strict=True):
            whole = end in row
            text = tokenizer.decode(row[: row.index(end)] if whole else row).strip()
            if text:
                yield one, text, whole
