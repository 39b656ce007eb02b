// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Kernels with the defects that scripts/sass-report and argument_layouts.py must find.

namespace globalq {

__global__ void fused_by_nvcc(double* x) { x[0] = x[1] * x[2] + x[3]; }

__global__ void fused_by_ptxas(double* x) {
  double product;
  asm("mul.f64 %0, %1, %2;" : "=d"(product) : "d"(x[1]), "d"(x[2]));
  asm("add.f64 %0, %1, %2;" : "=d"(x[0]) : "d"(product), "d"(x[3]));
}

__global__ void divides(double* x) { x[0] = x[1] / x[2]; }

struct empty {};
struct two_layouts {
  [[no_unique_address]] empty first;
  [[no_unique_address]] empty second;
  double* x;
};
__global__ void takes_two_layouts(two_layouts p) { *p.x = 1; }

struct same_size {
  [[no_unique_address]] empty first;
  [[no_unique_address]] empty second;
  char c;
  int i;
};
__global__ void takes_same_size(same_size p, char* x) { *x = p.c; }

/// Private, of a base, in an array of a nested class.
class cells {
  struct cell {
#ifdef __CUDA_ARCH__
    int a, b;
#else
    int b, a;
#endif
  };
  int before;
  cell all[2][3];

 public:
  __device__ int sum() const { return before + all[0][0].a + all[1][2].b; }
};
struct more_cells : cells {
  int after;
};
__global__ void takes_cells(int* x, more_cells p) { *x = p.sum() + p.after; }

struct bits {
#ifdef __CUDA_ARCH__
  unsigned a : 3, b : 7;
#else
  unsigned b : 7, a : 3;
#endif
};
__global__ void takes_bits(bits p, unsigned* x) { *x = p.a; }

/// No defect: what the debug information of host and device tells in different ways.
class padded : empty {
  long l;
  char c;

 public:
  struct nested;
};
struct padded::nested {
  char c;
  short s;
};
struct other {};
template <class T>
struct holder {
  T held;
};
struct alike : padded, other {
  enum class color : short { red };
  static constexpr int constant = 1;
  char in_padding;
  color e;
  unsigned long a : 3, b : 40;
  union {
    float f;
    int const volatile i;
  };
  int rows[2][3];
  holder<padded*> p;
  holder<holder<double>> h[2];
  nested n;
  int& reference;
  int (*function)(int);
  bool truth;
};
__global__ void takes_alike(alike p, int* x) { *x = p.i; }

}  // namespace globalq
