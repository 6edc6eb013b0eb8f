"""``score_mod``: a function of the logits, written as a callback, held as a value.

``S = scale * query key^T`` (float32, ``[B, Hq, Sq, Skv]``) is what it is given; what it returns
goes to the softmax. See ``trace`` for how callbacks become expressions, ``expression`` for what
these are, ``derivative`` for their gradients, and ``evaluate`` for their values.
"""

from .builder import Builder as Builder
from .compose import alibi as alibi
from .compose import band as band
from .compose import every as every
from .compose import identity as identity
from .compose import insert as insert
from .compose import select as select
from .compose import softcap as softcap
from .compose import standard_slopes as standard_slopes
from .compose import substitute as substitute
from .compose import where_visible as where_visible
from .derivative import gradient as gradient
from .evaluate import array_ops as array_ops
from .evaluate import evaluate as evaluate
from .expression import TENSOR_TYPES as TENSOR_TYPES
from .expression import Apply as Apply
from .expression import Axis as Axis
from .expression import Constant as Constant
from .expression import Expression as Expression
from .expression import Grad as Grad
from .expression import Index as Index
from .expression import Leaf as Leaf
from .expression import Node as Node
from .expression import Scalar as Scalar
from .expression import Score as Score
from .expression import Tensor as Tensor
from .expression import Type as Type
from .ops import OPS as OPS
from .symbol import Symbol as Symbol
from .trace import Graph as Graph
from .trace import ScalarArg as ScalarArg
from .trace import TensorArg as TensorArg
from .trace import Trace as Trace
from .trace import Traced as Traced
from .trace import trace as trace
from .trace import trace_bprop as trace_bprop
