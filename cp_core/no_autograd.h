// ATen without the layers of autograd. They record nothing in this library, but would take a tenth of a small case.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>

namespace cp_pool {

// Until the end of the scope, this thread's calls skip autograd, also where they make views and write in place. Not for
// tensors that code under test gets, since it may differentiate them.
using NoAutograd = at::AutoDispatchBelowADInplaceOrView;

}  // namespace cp_pool
