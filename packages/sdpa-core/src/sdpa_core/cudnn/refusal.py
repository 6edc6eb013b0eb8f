"""Telling what cuDNN does not support from what failed, and from our own mistakes."""

from __future__ import annotations

import contextlib
import re
import traceback
from collections.abc import Iterator
from types import ModuleType

from ..errors import SdpaEnvironmentError
from . import deviceless


class GraphRefusedError(Exception):
    """cuDNN does not support the graph; the text is its own."""


@contextlib.contextmanager
def refusals(cudnn: ModuleType) -> Iterator[None]:
    """Tell refusals, which stay, from failures, which may be gone at the next try.

    Every stage may refuse, each frontend version at another one. Other errors of cuDNN or CUDA
    (no memory, a capture under way) say nothing about the graph. Errors of our own code, in a
    builder or in a function of the logits, are raised as they are.
    """
    try:
        yield
    except cudnn.cudnnGraphNotSupportedError as error:
        deviceless.explain_failure(str(error))
        raise GraphRefusedError(one_line(error)) from error
    except (ValueError, RuntimeError) as error:
        if not _is_of_frontend(error, cudnn):
            raise
        deviceless.explain_failure(str(error))
        if isinstance(error, ValueError) or "NOT_SUPPORTED" in str(error):
            raise GraphRefusedError(one_line(error)) from error
        raise SdpaEnvironmentError(
            f"cuDNN failed while planning: {one_line(error)}. Where this is the first call inside "
            f"a stream capture, call once before it; else see: python -m cudnn.collect_env"
        ) from error


def _is_of_frontend(error: Exception, cudnn: ModuleType) -> bool:
    """Whether the innermost Python frame that an error passed is one of the frontend.

    Its C++ has no frames, but is called through its Python (frontend 1.28 to 1.32, ``_pygraph``).
    """
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    module = str(frame.f_globals.get("__name__", ""))
    return module.partition(".")[0] == cudnn.__name__


#: What cuDNN's messages give as reasons, most specific first, and how those look that only name a
#: function of its own.
_REASON = re.compile(r"Reason: (.+?)(?= at: | Warning: | \{|;|$)")
_OWN_FUNCTION = re.compile(r"[\w>.:-]+\(.*\)|.*\bstatus\b.*")
_PREAMBLE = re.compile(r" \(the backend declined.*")


def one_line(error: Exception) -> str:
    """The message without the engines' settings, which fill pages: its verdict and its reasons."""
    text = " ".join(str(error).split())
    given = dict.fromkeys(reason.strip() for reason in _REASON.findall(text))
    reasons = [reason for reason in given if not _OWN_FUNCTION.fullmatch(reason)]
    if not reasons:
        return text[:500]
    return f"{_PREAMBLE.sub('', text)[:200]}: {'; '.join(reasons)[:500]}"
