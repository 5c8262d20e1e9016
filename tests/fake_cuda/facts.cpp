// SPDX-License-Identifier: BSL-1.0
// Prints the constants of the CUDA header that this file is compiled with; see same_facts.cmake.
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdio>
#include <typeinfo>

#if CUDART_VERSION < 12080  // declared only in newer headers
extern "C" cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device);
#endif
#if CUDART_VERSION < 12050  // declared only in newer headers
extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function,
                                                        unsigned int version,
                                                        unsigned long long flags,
                                                        cudaDriverEntryPointQueryResult* status);
#endif

#define FACT(what) std::printf("%s %lld\n", #what, static_cast<long long>(what))
#define TYPE(what) std::printf("%s %s\n", #what, typeid(decltype(&(what))).name())

int main() {
  FACT(cudaSuccess);
  FACT(cudaErrorInvalidValue);
  FACT(cudaErrorMemoryAllocation);
  FACT(cudaErrorInitializationError);
  FACT(cudaErrorCudartUnloading);
  FACT(cudaErrorInvalidConfiguration);
  FACT(cudaErrorInsufficientDriver);
  FACT(cudaErrorStubLibrary);
  FACT(cudaErrorNoDevice);
  FACT(cudaErrorInvalidDevice);
  FACT(cudaErrorDeviceUninitialized);
  FACT(cudaErrorECCUncorrectable);
  FACT(cudaErrorNvlinkUncorrectable);
  FACT(cudaErrorInvalidResourceHandle);
  FACT(cudaErrorIllegalState);
  FACT(cudaErrorNotReady);
  FACT(cudaErrorIllegalAddress);
  FACT(cudaErrorLaunchTimeout);
  FACT(cudaErrorContextIsDestroyed);
  FACT(cudaErrorAssert);
  FACT(cudaErrorHostMemoryAlreadyRegistered);
  FACT(cudaErrorHostMemoryNotRegistered);
  FACT(cudaErrorHardwareStackError);
  FACT(cudaErrorIllegalInstruction);
  FACT(cudaErrorMisalignedAddress);
  FACT(cudaErrorInvalidAddressSpace);
  FACT(cudaErrorInvalidPc);
  FACT(cudaErrorLaunchFailure);
  FACT(cudaErrorNotPermitted);
  FACT(cudaErrorNotSupported);
  FACT(cudaErrorOperatingSystem);
  FACT(cudaErrorSystemDriverMismatch);
  FACT(cudaErrorCompatNotSupportedOnDevice);
  FACT(cudaErrorStreamCaptureUnsupported);
  FACT(cudaErrorStreamCaptureInvalidated);
  FACT(cudaErrorStreamCaptureMerge);
  FACT(cudaErrorStreamCaptureUnmatched);
  FACT(cudaErrorStreamCaptureUnjoined);
  FACT(cudaErrorStreamCaptureIsolation);
  FACT(cudaErrorStreamCaptureImplicit);
  FACT(cudaErrorCapturedEvent);
  FACT(cudaErrorStreamCaptureWrongThread);
  FACT(cudaErrorCallRequiresNewerDriver);
  FACT(cudaErrorInvalidDeviceFunction);
  FACT(cudaErrorNoKernelImageForDevice);
  FACT(cudaErrorUnsupportedPtxVersion);
  FACT(cudaErrorSystemNotReady);
  FACT(cudaErrorMpsClientTerminated);
  FACT(cudaErrorExternalDevice);
  FACT(cudaErrorUnknown);
  FACT(cudaEnableDefault);
  FACT(cudaDriverEntryPointSuccess);
  FACT(cudaDriverEntryPointSymbolNotFound);
  FACT(cudaDriverEntryPointVersionNotSufficent);
  FACT(cudaMemcpyHostToHost);
  FACT(cudaMemcpyHostToDevice);
  FACT(cudaMemcpyDeviceToHost);
  FACT(cudaMemcpyDeviceToDevice);
  FACT(cudaMemcpyDefault);
  FACT(cudaMemoryTypeUnregistered);
  FACT(cudaMemoryTypeHost);
  FACT(cudaMemoryTypeDevice);
  FACT(cudaMemoryTypeManaged);
  FACT(cudaStreamCaptureStatusNone);
  FACT(cudaStreamCaptureStatusActive);
  FACT(cudaStreamCaptureStatusInvalidated);
  FACT(cudaStreamCaptureModeGlobal);
  FACT(cudaStreamCaptureModeThreadLocal);
  FACT(cudaStreamCaptureModeRelaxed);
  FACT(cudaDevAttrIntegrated);
  FACT(cudaDevAttrCanMapHostMemory);
  FACT(cudaDevAttrUnifiedAddressing);
  FACT(cudaDevAttrCanUseHostPointerForRegisteredMem);
  FACT(cudaDevAttrPageableMemoryAccessUsesHostPageTables);
  FACT(cudaDevAttrHostRegisterReadOnlySupported);
  FACT(cudaDevAttrHostNumaId);
  FACT(cudaDevAttrMultiProcessorCount);
  FACT(cudaDevAttrComputeCapabilityMajor);
  FACT(cudaDevAttrComputeCapabilityMinor);
  FACT(cudaHostAllocDefault);
  FACT(cudaHostAllocPortable);
  FACT(cudaHostAllocMapped);
  FACT(cudaHostAllocWriteCombined);
  FACT(cudaHostRegisterDefault);
  FACT(cudaHostRegisterPortable);
  FACT(cudaHostRegisterMapped);
  FACT(cudaHostRegisterIoMemory);
  FACT(cudaHostRegisterReadOnly);
  FACT(cudaStreamDefault);
  FACT(cudaStreamNonBlocking);
  FACT(cudaEventDefault);
  FACT(cudaEventBlockingSync);
  FACT(cudaEventDisableTiming);
  FACT(sizeof(cudaPointerAttributes));
  FACT(offsetof(cudaPointerAttributes, type));
  FACT(offsetof(cudaPointerAttributes, device));
  FACT(offsetof(cudaPointerAttributes, devicePointer));
  FACT(offsetof(cudaPointerAttributes, hostPointer));
  FACT(sizeof(dim3));
  FACT(sizeof(uint3));
  FACT(alignof(uint2));
  FACT(alignof(uint4));
  FACT(sizeof(cudaLaunchConfig_t));
  FACT(offsetof(cudaLaunchConfig_t, blockDim));
  FACT(offsetof(cudaLaunchConfig_t, dynamicSmemBytes));
  FACT(offsetof(cudaLaunchConfig_t, stream));
  FACT(offsetof(cudaLaunchConfig_t, numAttrs));
  FACT(sizeof(cudaFuncAttributes));
  FACT(offsetof(cudaFuncAttributes, maxThreadsPerBlock));
  FACT(offsetof(cudaFuncAttributes, binaryVersion));
  std::printf("%p %p\n", static_cast<void*>(cudaStreamLegacy),
              static_cast<void*>(cudaStreamPerThread));
  TYPE(cudaGetErrorName);
  TYPE(cudaGetErrorString);
  TYPE(cudaGetDeviceCount);
  TYPE(cudaGetDevice);
  TYPE(cudaSetDevice);
  TYPE(cudaInitDevice);
  TYPE(cudaGetDriverEntryPointByVersion);
  TYPE(cudaGetDeviceProperties);
  TYPE(cudaDeviceGetAttribute);
  TYPE(cudaDeviceGetPCIBusId);
  TYPE(cudaDeviceSynchronize);
  TYPE(cudaMemGetInfo);
  TYPE(cudaDriverGetVersion);
  TYPE(cudaRuntimeGetVersion);
  TYPE(cudaGetLastError);
  TYPE(cudaPeekAtLastError);
  TYPE(cudaStreamCreate);
  TYPE(cudaStreamCreateWithFlags);
  TYPE(cudaStreamCreateWithPriority);
  TYPE(cudaDeviceGetStreamPriorityRange);
  TYPE(cudaStreamGetPriority);
  TYPE(cudaStreamDestroy);
  TYPE(cudaStreamSynchronize);
  TYPE(cudaStreamQuery);
  TYPE(cudaStreamWaitEvent);
  TYPE(cudaStreamGetDevice);
  TYPE(cudaStreamGetFlags);
  TYPE(cudaStreamIsCapturing);
  TYPE(cudaStreamBeginCapture);
  TYPE(cudaStreamEndCapture);
  TYPE(cudaThreadExchangeStreamCaptureMode);
  TYPE(cudaEventCreate);
  TYPE(cudaEventCreateWithFlags);
  TYPE(cudaEventDestroy);
  TYPE(cudaEventRecord);
  TYPE(cudaEventQuery);
  TYPE(cudaEventSynchronize);
  TYPE(cudaEventElapsedTime);
  TYPE(cudaLaunchKernel);
  TYPE(cudaLaunchKernelExC);
  TYPE(cudaFuncGetAttributes);
  TYPE(cudaLaunchHostFunc);
  TYPE(cudaMalloc);
  TYPE(cudaFree);
  TYPE(cudaHostAlloc);
  TYPE(cudaMallocHost);
  TYPE(cudaFreeHost);
  TYPE(cudaHostRegister);
  TYPE(cudaHostUnregister);
  TYPE(cudaMemcpyAsync);
  TYPE(cudaMemcpy);
  TYPE(cudaMemsetAsync);
  TYPE(cudaPointerGetAttributes);
  TYPE(cudaGraphInstantiate);
  TYPE(cudaGraphInstantiateWithFlags);
  TYPE(cudaGraphGetNodes);
  TYPE(cudaGraphUpload);
  TYPE(cudaGraphLaunch);
  TYPE(cudaGraphDestroy);
  TYPE(cudaGraphExecDestroy);
}
