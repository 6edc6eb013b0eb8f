"""What is looked at, one small function each, and the table of all of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from sdpa_core.cudnn.rules.where import MINIMUM_CUDNN

from .environment import Environment

#: What the adapters require (their pyproject.toml), as the number that build_info() has.
MINIMUM_FRONTEND = 12800
#: Before it, cuDNN needs nvrtc to build plans without a GPU.
NO_NVRTC_SINCE = 92800
#: What the executor is built for.
PLATFORMS = ("Linux x86_64", "Linux aarch64")


class Level(StrEnum):
    """How bad a finding is. A warning leaves something usable; what is broken does not."""

    OK = "ok"
    WARNING = "warning"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found.

    Attributes:
        check: its name.
        level: how bad it is.
        text: what was found.
        fix: the command that mends it; empty if nothing is wrong.
    """

    check: str
    level: Level
    text: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """A finding before it has the name of its check."""

    text: str
    fix: str = ""
    level: Level = Level.OK


def _broken(text: str, fix: str) -> Seen:
    return Seen(text, fix, Level.BROKEN)


def _warning(text: str, fix: str) -> Seen:
    return Seen(text, fix, Level.WARNING)


def _dotted(number: int) -> str:
    """91900 -> 9.19.0."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def _cuda(number: int) -> str:
    """12090 -> 12.9."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _version(text: str) -> int:
    """1.32.0 -> 13200; what cannot be read is 0."""
    found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    if found is None:
        return 0
    major, minor, patch = (int(part or 0) for part in found.groups())
    return major * 10000 + minor * 100 + patch


def _wheel(env: Environment) -> str:
    """The cuDNN wheel for this machine: the frameworks', else the driver's CUDA, else newest."""
    if wanted := sorted(set(env.cudnn_wanted.values())):
        return env.cudnn_wanted.get("torch", wanted[-1])
    cuda = 12 if env.driver is not None and env.driver.cuda // 1000 == 12 else 13
    return f"nvidia-cudnn-cu{cuda}"


# ----------------------------------------------------------------------------------- the checks


def _platform(env: Environment) -> Iterator[Seen]:
    text = f"{env.platform}, {env.libc}, Python {env.python}"
    if env.platform in PLATFORMS:
        yield Seen(text)
    else:
        yield _broken(f"{text}; cuDNN needs one of {', '.join(PLATFORMS)}", "use backend=reference")


def _executor(env: Environment) -> Iterator[Seen]:
    frontend = _dotted(env.compiled_frontend)
    version = env.packages.get("sdpa-ffi", "of a source tree")
    yield Seen(
        f"sdpa-ffi {version}, ABI {env.executor_abi}, compiled with cudnn-frontend {frontend}"
    )


def _driver(env: Environment) -> Iterator[Seen]:
    if env.driver is None:
        yield _broken(
            "no NVIDIA driver: libcuda.so.1 cannot be loaded",
            "install the NVIDIA driver (Debian: apt-get install nvidia-driver), then: nvidia-smi",
        )
    elif env.driver.error:
        yield _broken(f"the NVIDIA driver does not start: {env.driver.error}", "nvidia-smi")
    else:
        yield Seen(f"NVIDIA driver for CUDA {_cuda(env.driver.cuda)}")


def _devices(env: Environment) -> Iterator[Seen]:
    if env.driver is None or env.driver.error:
        return
    if not env.driver.gpus:
        yield _broken("the driver shows no GPU to this process", "unset CUDA_VISIBLE_DEVICES")
    for ordinal, gpu in enumerate(env.driver.gpus):
        text = f"{ordinal}: {gpu.name}, sm{gpu.sm}, {gpu.memory_bytes / 2**30:.0f} GiB"
        if gpu.sm >= 80:
            yield Seen(text)
        else:
            hide = f"export CUDA_VISIBLE_DEVICES=...  # without {ordinal}"
            yield _warning(f"{text}; attention of cuDNN needs sm80 or newer", hide)


def _cudnn(env: Environment) -> Iterator[Seen]:
    wheel, cudnn = _wheel(env), env.cudnn
    if cudnn is None:
        old = [f"{name} {env.packages[name]}" for name in _cudnn_wheels(env)]
        remark = f" ({', '.join(old)} has none)" if old else ""
        yield _broken(f"no libcudnn.so.9 was found{remark}", f"pip install -U '{wheel}>=9.10.2'")
    elif cudnn.error:
        again = f"pip install --force-reinstall --no-deps {wheel}"
        yield _broken(f"{cudnn.path} cannot be loaded: {cudnn.error}", again)
    else:
        version, cuda = _dotted(cudnn.version), _cuda(cudnn.cuda)
        text = f"cuDNN {version} for CUDA {cuda}, {cudnn.path} ({cudnn.how})"
        if cudnn.version // 10000 == 9 and cudnn.version >= MINIMUM_CUDNN:
            yield Seen(text)
        else:
            need = f"needed is 9, from {_dotted(MINIMUM_CUDNN)} on"
            yield _broken(f"{text}; {need}", f"pip install -U '{wheel}>=9.10.2,<10'")


def _cudnn_wheels(env: Environment) -> list[str]:
    return [name for name in env.packages if re.fullmatch(r"nvidia-cudnn-cu\d+", name)]


def _cuda_of_cudnn(env: Environment) -> Iterator[Seen]:
    if env.cudnn is None or env.cudnn.error or env.driver is None or env.driver.error:
        return
    ours, theirs = env.cudnn.cuda // 1000, env.driver.cuda // 1000
    if ours > theirs:
        yield _broken(
            f"cuDNN is built for CUDA {ours}, the driver runs CUDA {_cuda(env.driver.cuda)}",
            f"pip uninstall -y nvidia-cudnn-cu{ours}; pip install nvidia-cudnn-cu{theirs}  "
            "# or upgrade the driver",
        )


def _frontend(env: Environment) -> Iterator[Seen]:
    version = env.packages.get("nvidia-cudnn-frontend")
    need = _dotted(MINIMUM_FRONTEND)
    fix = f"pip install -U 'nvidia-cudnn-frontend>={need}'"
    if version is None:
        yield _broken("nvidia-cudnn-frontend is not installed, no plan can be made", fix)
    elif _version(version) < MINIMUM_FRONTEND:
        yield _broken(f"nvidia-cudnn-frontend {version}; {need} or newer is needed", fix)
    else:
        yield Seen(f"nvidia-cudnn-frontend {version}")


def _frameworks(env: Environment) -> Iterator[Seen]:
    for name in ("torch", "jax"):
        if name in env.packages:
            wheel = env.cudnn_wanted.get(name)
            yield Seen(f"{name} {env.packages[name]}" + (f", wants {wheel}" if wheel else ""))
    if "+cpu" in env.packages.get("torch", ""):
        yield _warning("this torch is built without CUDA", "pip install --force-reinstall torch")
    if "jax" in env.packages and not any(name.startswith("jax-cuda") for name in env.packages):
        cuda = _wheel(env).removeprefix("nvidia-cudnn-cu")
        yield _warning("this JAX has no CUDA plugin", f"pip install -U 'jax[cuda{cuda}]'")
    if not {"torch", "jax"} & set(env.packages):
        yield _warning("neither torch nor jax is installed", "pip install sdpa-torch")


def _one_cuda(env: Environment) -> Iterator[Seen]:
    """All wheels of cuDNN write into one folder, so only one major version of CUDA can be right."""
    asked = {f"{who} wants {wheel}": wheel for who, wheel in env.cudnn_wanted.items()}
    there = {f"{wheel} is installed": wheel for wheel in _cudnn_wheels(env)}
    majors = {*asked.values(), *there.values()}
    if len(majors) < 2:
        return
    keep = _wheel(env)
    cuda = keep.removeprefix("nvidia-cudnn-cu")
    remove = sorted(majors & set(there.values()) - {keep})
    plugins = [who for who, wheel in env.cudnn_wanted.items() if wheel != keep and who != "torch"]
    steps = [
        *([f"pip uninstall -y {' '.join([*remove, *plugins])}"] if remove or plugins else []),
        *([f"pip install -U 'jax[cuda{cuda}]'"] if plugins else []),
        f"pip install --force-reinstall --no-deps {_pinned(env, keep)}",
    ]
    yield _broken(f"mixed versions of CUDA: {', '.join([*asked, *there])}", " && ".join(steps))


def _pinned(env: Environment, wheel: str) -> str:
    version = env.packages.get(wheel)
    return f"{wheel}=={version}" if version else wheel


def _nvrtc(env: Environment) -> Iterator[Seen]:
    if env.nvrtc is not None:
        yield Seen(f"nvrtc, {env.nvrtc}")
    elif env.cudnn is not None and 0 < env.cudnn.version < NO_NVRTC_SINCE:
        suffix = "-cu12" if _wheel(env).endswith("cu12") else ""
        yield _warning(
            f"no nvrtc: cuDNN before {_dotted(NO_NVRTC_SINCE)} cannot build plans without a GPU",
            f"pip install nvidia-cuda-nvrtc{suffix}",
        )


def _store(env: Environment) -> Iterator[Seen]:
    store = env.store
    elsewhere = "export SDPA_CACHE_DIR=/a/folder/of/yours"
    if store is None:
        yield Seen("this sdpa-core keeps no plans on disk")
    elif store.error:
        yield _warning(f"plans are kept in memory only: {store.error}", elsewhere)
    elif not store.enabled:
        yield _warning("the plan store is switched off", "unset SDPA_PLAN_STORE")
    else:
        text = f"{store.folder}, {store.plans} plans, {store.bytes / 2**20:.1f} MiB"
        if store.writable:
            yield Seen(text)
        else:
            yield _warning(f"{text}; cannot be written to, new plans stay in memory", elsewhere)


Check = Callable[[Environment], Iterator[Seen]]

CHECKS: tuple[tuple[str, Check], ...] = (
    ("platform", _platform),
    ("executor", _executor),
    ("driver", _driver),
    ("devices", _devices),
    ("cuDNN", _cudnn),
    ("cuDNN's CUDA", _cuda_of_cudnn),
    ("frontend", _frontend),
    ("frameworks", _frameworks),
    ("one CUDA", _one_cuda),
    ("nvrtc", _nvrtc),
    ("plan store", _store),
)


def examine(env: Environment) -> list[Finding]:
    """What all checks find, in their order."""
    return [
        Finding(name, seen.level, seen.text, seen.fix)
        for name, check in CHECKS
        for seen in check(env)
    ]


def is_usable(findings: Iterable[Finding]) -> bool:
    """Whether nothing is broken."""
    return all(finding.level is not Level.BROKEN for finding in findings)
