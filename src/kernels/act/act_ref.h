// The elementwise pieces of act.h in double, for one value.
#pragma once

namespace espalier::kernels {

double silu_ref(double x);
double sigmoid_ref(double x);
double softplus_ref(double x);

}  // namespace espalier::kernels
