"""The Python in READMEs and docs/*.md runs; pages list what there is, and what is not implemented.

The blocks of a page run in order and share their names. Those marked "python" run; what cannot,
or should not, is marked "py". Without a GPU, CUDA tensors become CPU ones.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sdpa_core.pending import PENDING
from sdpa_core.score_mod import OPS
from sdpa_core.score_mod.ops import Typing

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(text: str) -> list[str]:
    """The code of a page; blank lines before it keep the line numbers of the page."""
    return ["\n" * text.count("\n", 0, m.start(1)) + m[1] for m in BLOCK.finditer(text)]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


PAGES = [
    page
    for pattern in ("README.md", "docs/*.md", "packages/*/README.md")
    for page in sorted(ROOT.glob(pattern))
    if blocks(page.read_text(encoding="utf-8"))
]


def test_pages_are_found():
    expected = {
        "README.md",
        "docs/semantics.md",
        "docs/score-mod.md",
        "packages/sdpa-torch/README.md",
    }
    assert expected <= {name_of(page) for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code_of(page):
    text = page.read_text(encoding="utf-8")
    if not has_cuda():
        text = text.replace('device="cuda"', 'device="cpu"')
    names = {"__name__": page.stem}
    for block in blocks(text):
        exec(compile(block, str(page), "exec"), names)


def test_a_failing_block_is_found_at_its_line():
    (block,) = blocks("# Title\n\n```python\nassert 1 + 1 == 3\n```\n")
    with pytest.raises(AssertionError) as failure:
        exec(compile(block, "page.md", "exec"), {})
    assert failure.traceback[-1].lineno + 1 == 4


def test_semantics_lists_what_is_pending():
    text = (ROOT / "docs" / "semantics.md").read_text(encoding="utf-8")
    section = text.partition("## Not implemented yet")[2]
    table = "\n".join(line for line in section.splitlines() if line.startswith("|"))
    assert set(re.findall(r"`(\w+)`", table)) == set(PENDING)


#: How score-mod.md names the types of ``sdpa_core.score_mod.ops``.
TYPINGS = {
    "floats, a float": Typing.FLOAT,
    "ints or floats, the same": Typing.NUMBER,
    "ints or floats, a bool": Typing.COMPARISON,
    "bools, a bool": Typing.LOGICAL,
    "two ints or floats and a bool, one of the two": Typing.SELECT,
    "anything, a float": Typing.TO_FLOAT,
    "an int or a bool, an int": Typing.TO_INT,
}


def test_score_mod_lists_every_operation():
    text = (ROOT / "docs" / "score-mod.md").read_text(encoding="utf-8")
    section = text.partition("## Operations")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ", 1) for line in section.splitlines() if line[:1] == "|"]
    listed = {
        name: (tuple(operands.split(", ")), TYPINGS[words])
        for words, operations in rows[2:]
        for name, operands in re.findall(r"`(\w+)\(([\w, ]+)\)`", operations)
    }
    assert listed == {op.name: (op.operands, op.typing) for op in OPS.values()}
