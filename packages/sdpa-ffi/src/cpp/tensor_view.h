#pragma once

#include "dlpack_abi.h"
#include "operands.h"
#include "status.h"

namespace sdpa_ffi {

// What a DLPack tensor says about its memory: the operand's bytes reach from its first element to
// the end of its last, strides included.
Result<Operand> OperandFromTensor(const dlpack::Tensor& tensor);

}  // namespace sdpa_ffi
