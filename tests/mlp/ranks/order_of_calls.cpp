// SPDX-License-Identifier: BSL-1.0
// Loaded into a program of MPI (LD_PRELOAD): says on standard error when the program frees a
// communicator, and when it ends all ranks. The names with a P are MPI's own, for such programs.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstdio>

extern "C" int MPI_Comm_free(MPI_Comm* comm) {
  std::fputs("called: MPI_Comm_free\n", stderr);
  return PMPI_Comm_free(comm);
}

extern "C" int MPI_Abort(MPI_Comm comm, int status) {
  std::fputs("called: MPI_Abort\n", stderr);
  return PMPI_Abort(comm, status);
}
