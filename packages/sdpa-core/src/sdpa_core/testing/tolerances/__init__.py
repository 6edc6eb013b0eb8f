"""How far a correct implementation may be from the oracle, element by element.

A fixed relative tolerance is wrong for attention: where the logits are all alike, ``dQ`` is a
small difference of large terms and a faultless 16-bit kernel is off by a third of it, while the
log-sum-exp is good to seven digits always. So the tolerance follows from what an implementation
must round. It is a typical error, carried through the formulas of ``reference``, times ``MARGIN``.

With ``u`` the unit roundoff of the operands' type and ``f`` that of sums of products (float32 for
all types but float64), an implementation may

* store results in the operands' type: ``u |result|`` (the LSE in float32);
* round ``P``, ``dP`` and ``dS`` to that type, for the second matrix product: ``u`` per element,
  independent of each other, hence added in squares;
* compute ``D_i`` from the rounded output: one error for the whole row ``i``, which reaches ``dQ_i``
  through the mean key ``sum_j P_ij k_j``;
* sum in another order: ``S_ij`` is good to ``f`` times the sum of its terms' magnitudes (products,
  bias, ALiBi, what a function of the logits adds), and so is the exponent of ``P_ij``. A key of no
  weight does not matter;
* compute the derivative of a function of the logits in float32.

Dropout multiplies what it keeps, with its error, by ``1 / (1 - p)``. A sink is one more term of the
denominator.

Numbers below the smallest normal one may be flushed to zero, except in float16, where denser
numbers follow and kernels keep them.
"""

from .closeness import MARGIN as MARGIN
from .closeness import assert_close as assert_close
from .scales import ErrorScales as ErrorScales
from .scales import error_scales as error_scales
from .scales import scales_of as scales_of
