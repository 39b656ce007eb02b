# SPDX-License-Identifier: Apache-2.0
"""The recipe of globalq for Spack 1.0 or newer. It builds a clone: see packaging/README.md."""

from spack_repo.builtin.build_systems.cmake import CMakePackage

from spack.package import *


class Globalq(CMakePackage):
    """Gradient-compression operators for data-parallel training, in C++20 on Kokkos."""

    license("Apache-2.0")

    version("0.3.0")

    variant("compiled", default=True, description="Install globalq::compiled, kernels compiled once")
    variant("c", default=False, description="Install libglobalq.so, the interface in C")
    variant("mpi", default=False, description="Install globalq::mpi, workers of MPI")
    variant("nccl", default=False, description="Install globalq::nccl, for vectors in memory of CUDA devices")
    variant("eigen", default=False, description="Install globalq::eigen, compressors that multiply matrices")

    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("kokkos@4.6:")
    depends_on("kokkos +pic", when="+c")  # its archive goes into a shared library
    depends_on("mpi", when="+mpi")
    depends_on("eigen@3.4:", when="+eigen")
    with when("+nccl"):
        depends_on("nccl@2.14:")
        depends_on("cuda")
        depends_on("kokkos +cuda")

    conflicts("%gcc@:11", msg="globalq needs g++ 12 or newer")
    conflicts("%clang@:13", msg="globalq needs clang 14 or newer")
    conflicts("+compiled", when="+nccl", msg="globalq::compiled has no kernels for CUDA: use ~compiled")
    conflicts("+c", when="+nccl", msg="libglobalq.so has no kernels for CUDA: use ~c")

    def cmake_args(self):
        """The options of CMakeLists.txt."""
        return [
            self.define_from_variant("GLOBALQ_BUILD_COMPILED", "compiled"),
            self.define_from_variant("GLOBALQ_BUILD_C", "c"),
            self.define_from_variant("GLOBALQ_ENABLE_MPI", "mpi"),
            self.define_from_variant("GLOBALQ_ENABLE_NCCL", "nccl"),
            self.define_from_variant("GLOBALQ_ENABLE_EIGEN", "eigen"),
            self.define("GLOBALQ_BUILD_TESTS", False),
            self.define("GLOBALQ_BUILD_BENCH", False),
            self.define("GLOBALQ_BUILD_EXAMPLES", False),
            self.define("GLOBALQ_BUILD_DOCS", False),
            self.define("GLOBALQ_BUILD_ADVISE", False),
        ]
