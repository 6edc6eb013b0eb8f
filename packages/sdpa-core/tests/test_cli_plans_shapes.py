"""Files of shapes and of devices: what they say, and mistakes in them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from sdpa_core import AttentionProblem, Band, DeviceSpec, device_names
from sdpa_core.cli import main, parser
from sdpa_core.cli import problem as problems
from sdpa_core.cli.plans.devices import device
from sdpa_core.cli.plans.fields import FIELDS
from sdpa_core.cli.plans.presets import presets
from sdpa_core.cli.plans.shapes import read_shapes
from sdpa_core.problem import Softmax

Captured = pytest.CaptureFixture[str]
SIZES = "heads = 4\ntokens = 256\nhead_dim = 64\n"


def read(folder: Path, text: str) -> list[AttentionProblem]:
    file = folder / "shapes.toml"
    file.write_text(text)
    return [shape.problem for shape in read_shapes(file)]


def one(folder: Path, fields: str) -> AttentionProblem:
    (problem,) = read(folder, f"[[attention]]\n{SIZES}{fields}")
    return problem


# ----------------------------------------------------------------------------------- fields

#: Fields, and the options of ``explain`` that mean the same.
FIELDS_AND_OPTIONS = {
    "": "",
    "batch = 2": "--q 2,4,256,64",
    "heads_kv = 2": "--kv 1,2,256,64",
    "tokens_kv = 128": "--kv 1,4,128,64",
    "v_dim = 128": "--v-dim 128",
    "dtype = 'fp16'": "--dtype fp16",
    "layout = 'bshd'": "--layout bshd",
    "causal = true": "--causal",
    "causal = false": "",
    "causal = 'bottom_right'\ntokens_kv = 512": "--causal bottom_right --kv 1,4,512,64",
    "window = '16,inf'": "--window 16,inf",
    "bias = '1,h,s,t'": "--bias 1,4,256,256",
    "bias = 'b,1,1,t:fp32'\nbatch = 3": "--q 3,4,256,64 --bias 3,1,1,256:fp32",
    "bias = 's,t:bool'": "--bias 256,256:bool",
    "bias = 's,t'\nbias_grad = true\ntraining = true": "--bias 256,256 --bias-grad --training",
    "alibi = true": "--alibi",
    "alibi_slopes = 'h'": "--alibi-slopes h",
    "softmax = 'off_by_one'": "--softmax off_by_one",
    "softmax = 'learnable'\nsink_grad = true\ntraining = true": (
        "--softmax learnable --sink-grad --training"
    ),
    "softcap = 30": "--softcap 30",
    "dropout = 0.25": "--dropout 0.25",
    "seq_lens_q = true": "--seq-lens-q",
    "seq_lens_kv = true": "--seq-lens-kv",
    "packed = 'both:100'": "--packed both:100",
    "packed = 'q:100 kv:200'": "--packed q:100 --packed kv:200",
    "packed = 'q'\ngaps = true": "--packed q --gaps",
    "page_size = 64": "--page-size 64",
    "training = true": "--training",
    "lse = true": "--lse",
    "max_logit = true": "--max-logit",
    "deterministic = true": "--deterministic",
}


@pytest.mark.parametrize("fields", FIELDS_AND_OPTIONS)
def test_a_field_means_what_its_option_means(fields: str, tmp_path: Path) -> None:
    options = FIELDS_AND_OPTIONS[fields]
    shape = "" if "--q" in options else "--q 1,4,256,64"
    given = parser().parse_args(shlex.split(f"explain --sm 90 {shape} {options}"))
    assert one(tmp_path, fields) == problems.problem(given)


def test_every_field_is_tested() -> None:
    text = "\n".join((SIZES, *FIELDS_AND_OPTIONS))
    told = {line.partition(" ")[0] for line in text.splitlines() if line}
    assert told | {"q", "kv", "grad_layout", "pages"} == set(FIELDS)


def test_whole_shapes(tmp_path: Path) -> None:
    text = "[[attention]]\nq = ['2,4,256,64', '1,8,128,64']\n[[attention]]\nq = '2,4,256,64'\n"
    first, second, third = read(tmp_path, f"{text}kv = '2,2,512,64'\n")
    assert (first.query.shape, second.query.shape) == ((2, 4, 256, 64), (1, 8, 128, 64))
    assert first.key.shape == first.query.shape
    assert third.key.shape == (2, 2, 512, 64)


def test_a_gradient_in_an_order_of_its_own(tmp_path: Path) -> None:
    problem = one(tmp_path, "training = true\ngrad_layout = 'bshd'")
    assert problem.output.strides == (65536, 16384, 64, 1)
    assert problem.grad_output is not None
    assert problem.grad_output.strides == (65536, 64, 256, 1)


def test_a_pool_of_pages(tmp_path: Path) -> None:
    """Of any size; a sequence has room for whole pages, as page tables say it."""
    problem = one(tmp_path, "tokens_kv = 100\npage_size = 64\npages = 1000")
    assert problem.key.shape == problem.value.shape == (1000, 4, 64, 64)
    assert problem.tokens_kv == 128


# ------------------------------------------------------------------------ lists, ranges, presets


def test_lists_and_ranges_are_combined(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        """
        [[attention]]
        heads = 4
        head_dim = [64, 128]
        tokens = { from = 128, to = 600, factor = 2 }
        batch = { from = 1, to = 6, step = 2 }
        """,
    )
    shapes = [problem.query.shape for problem in found]
    assert shapes == [
        (batch, 4, tokens, width)
        for width in (64, 128)
        for tokens in (128, 256, 512)
        for batch in (1, 3, 5)
    ]


def test_what_means_the_same_is_one_problem(tmp_path: Path) -> None:
    text = f"[[attention]]\n{SIZES}causal = [true, 'top_left']\n"
    assert len(read(tmp_path, text * 2)) == 1


def test_presets_are_filled_in(tmp_path: Path) -> None:
    text = "[[attention]]\npreset = ['llama3-8b', 'deepseek-v3']\ntokens = [128, 256]\n"
    found = read(tmp_path, text)
    assert {(p.heads, p.heads_kv, p.tokens_q) for p in found} == {
        *((32, 8, 128), (32, 8, 256), (128, 128, 128), (128, 128, 256)),
    }
    assert {p.value.shape[3] for p in found} == {128}
    assert all(problem.band == Band.causal() for problem in found)


def test_a_field_of_the_table_replaces_the_preset_s(tmp_path: Path) -> None:
    (problem,) = read(tmp_path, "[[attention]]\npreset = 'llama3-8b'\ntokens = 64\nheads_kv = 32")
    assert problem.heads_kv == 32


def test_kinds_of_layers_and_gradients_of_a_preset(tmp_path: Path) -> None:
    """Rows that do not train have no gradient of a sink."""
    text = "[[attention]]\npreset = 'gpt-oss-20b'\ntokens = 512\ntraining = [true, false]\n"
    found = read(tmp_path, text)
    assert {problem.softmax for problem in found} == {Softmax.LEARNABLE}
    assert sorted((p.band.left or 0, p.training, p.sink_grad) for p in found) == [
        *((0, False, False), (0, True, True)),
        *((127, False, False), (127, True, True)),
    ]


@pytest.mark.parametrize("name", presets())
def test_every_preset_is_a_table(name: str, tmp_path: Path) -> None:
    tokens = "" if all("tokens" in kind for kind in presets()[name]) else "tokens = 128"
    found = read(tmp_path, f"[[attention]]\npreset = {name!r}\n{tokens}\ntraining = true")
    assert len(found) in {len(presets()[name]), 1}


def test_every_preset_names_its_source() -> None:
    import tomllib

    import sdpa_core.cli.plans.presets as module

    text = Path(module.__file__).with_suffix(".toml").read_text()
    assert all(model["source"] for model in tomllib.loads(text).values())


# --------------------------------------------------------------------------------- mistakes

TABLES = {
    "tokens = 0": "tokens = 0; expected a positive integer",
    "tokens = true": "tokens = True; expected a positive integer",
    "tokens = 'many'": "tokens = 'many'; expected a positive integer",
    "tokens = []": "tokens = []; expected at least one value",
    "tokens = [64, -1]": "tokens = -1; expected a positive integer",
    "tokens = { from = 1, to = 4 }": "expected from, to, and step or factor",
    "tokens = { from = 1, to = 4, step = 0 }": "tokens.step = 0; expected a positive integer",
    "tokens = { from = 4, to = 1, step = 1 }": "tokens.from = 4 is larger than tokens.to = 1",
    "tokens = { from = 1, to = 4, factor = 1 }": "tokens.factor = 1; expected at least 2",
    "tokens = { from = 1, to = 999999999, step = 1 }": "more than 100,000 combinations",
    "causal = { from = 1, to = 2, step = 1 }": "causal cannot be a range",
    "causal = 'middle'": "causal = 'middle'; 'middle'; expected top_left or bottom_right",
    "causal = 1": "causal = 1; expected a text",
    "window = 128": "window = 128; expected a text such as '128,0'",
    "dtype = 'half'": "dtype = 'half'; 'half' is no dtype; expected one of float16",
    "dtype = 'int32'": "query has dtype int32",
    "layout = 'hsbd'": "layout = 'hsbd'; expected one of bhsd, bshd, sbhd",
    "softmax = 'plain'": "softmax = 'plain'; expected one of vanilla, off_by_one, learnable",
    "softcap = 'high'": "softcap = 'high'; expected a number",
    "softcap = [30, nan]": "softcap = nan; expected a number",
    "softcap = 0": "softcap = 0.0; expected a positive finite number",
    "dropout = 1": "dropout = 1.0; expected a number in [0, 1)",
    "lse = 'yes'": "lse = 'yes'; expected true or false",
    "bias = 5": "bias = 5; expected a text such as '1,h,s,t'",
    "bias = 'h,x'": "bias = 'h,x'; expected lengths such as 1,h,s,t",
    "bias = '1,1,25,t'": "bias has shape [1, 1, 25, 256]; expected the logits'",
    "bias_grad = true": "bias_grad needs bias and training",
    "packed = 'v'": "packed = 'v'; 'v'; expected q, kv or both",
    "packed = 'both:0'": "packed has 0 rows",
    "gaps = true": "gaps needs packed",
    "pages = 5": "pages needs page_size",
    "grad_layout = 'bshd'": "grad_layout is for dense queries in training",
    "heads_kv = 3": "the query's heads must be a multiple of the key's",
    "heads_kv = [2, 3]": "with heads_kv = 3: query has 4 heads, key has 3",
    "q = '1,4,256,64'": "q and heads exclude each other",
    "kv = '1,4,256,64'": "kv needs q",
    "preset = 'llama9'": "preset = 'llama9'; expected one of llama3-8b",
    "score_mod = 'x'": "'score_mod' is no field; expected among preset, batch",
}


@pytest.mark.parametrize("field", TABLES)
def test_a_mistake_is_one_line_that_names_file_table_and_field(
    field: str, tmp_path: Path, capsys: Captured
) -> None:
    file = tmp_path / "shapes.toml"
    name = field.partition(" ")[0]
    kept = [line for line in SIZES.splitlines() if line.partition(" ")[0] != name]
    fields = "\n".join((*kept, field))
    file.write_text(f"[[attention]]\n{SIZES}\n[[attention]]\n{fields}\n")
    assert main(["plans", "build", "--device", "h200", str(file)]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith(f"python -m sdpa_core: {file}, [[attention]] 2, ")
    assert TABLES[field] in err
    assert err.count("\n") == 1


FILES = {
    "[[attention]]\nheads =": "Invalid value",
    "[attention]\nheads = 1": "expected [[attention]] tables",
    "attention = 1": "expected [[attention]] tables",
    "heads = 1": "'heads' is no table of it; expected [[attention]]",
    "": "expected [[attention]] tables",
    "[[attention]]\ntokens = 1\nhead_dim = 64": "heads is missing",
    "[[attention]]\nq = '1,2,3'": "q has shape [1, 2, 3]; expected 4 positive lengths",
}


@pytest.mark.parametrize("text", FILES)
def test_a_wrong_file_is_one_line(text: str, tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "shapes.toml"
    file.write_text(text)
    assert main(["plans", "build", str(file), "--device", "h200"]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"python -m sdpa_core: {file}")
    assert FILES[text] in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("--device h200 none.toml", "none.toml: No such file or directory"),
        ("--device h200", "required: SHAPES.toml"),
        ("shapes.toml", "required: --device"),
        ("--device h300 shapes.toml", "device = 'h300'; expected one of a100, b200"),
        ("--device none.json shapes.toml", "none.json: No such file or directory"),
        ("--device h200 --jobs 0 shapes.toml", "'0'; expected a positive integer"),
        ("--device h200 --direction up shapes.toml", "--direction"),
    ],
)
def test_wrong_arguments(arguments: str, text: str, capsys: Captured) -> None:
    assert main(["plans", "build", *arguments.split()]) == 2
    err = capsys.readouterr().err
    assert text in err
    assert err.count("\n") == 1


# ---------------------------------------------------------------------------------- devices


@pytest.mark.parametrize("name", device_names())
@pytest.mark.parametrize("wrapped", [True, False])
def test_a_file_of_properties_is_its_device(name: str, wrapped: bool, tmp_path: Path) -> None:
    named = DeviceSpec.named(name)
    assert named.properties is not None
    properties = json.loads(named.properties)
    file = tmp_path / "PROPS.json"
    file.write_text(json.dumps({"properties": properties} if wrapped else properties))
    found = device(str(file))
    assert found == named == device(name)
    assert json.loads(found.properties or "") == properties


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "it is no JSON"),
        ("[]", "expected an object of device properties"),
        ("{}", "deviceName = None; expected of type str"),
        ('{"deviceName": "x", "deviceVer": "90"}', "deviceVer = '90'; expected of type int"),
    ],
)
def test_a_wrong_file_of_properties(text: str, fault: str, tmp_path: Path) -> None:
    file = tmp_path / "PROPS.json"
    file.write_text(text)
    with pytest.raises((TypeError, ValueError), match=rf"PROPS\.json: {fault}"):
        device(str(file))
