// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <nvimgcodec.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace test {

/// A call in which nvImageCodec's double decoded pictures.
struct double_call {
  nvimgcodecBackendKind_t kind;  // the last back end that the decoder is restricted to
  std::size_t pictures;
  int device;
  nvimgcodecImageBufferKind_t memory;
  cudaStream_t stream;
  int regions;
  friend bool operator==(const double_call&, const double_call&) = default;
};

/// The double of nvImageCodec: its settings and what it has observed. The decoders have no GPU and
/// write to host memory. A picture has 2 x 2 pixels. Its bytes are "P6\n", or "II*" and a zero,
/// followed by a word. Each letter of the word (g, h or c) is a back end that can decode the
/// picture and then writes that letter. All other back ends return the status `undecoded`. A
/// decoder with allocators allocates `working` bytes of each kind for itself, and again for each
/// call.
struct nvimgcodec_double {
  std::string missing;  // back ends whose decoder cannot be created
  nvimgcodecProcessingStatus_t undecoded = NVIMGCODEC_PROCESSING_STATUS_FAIL;
  nvimgcodecStatus_t header = NVIMGCODEC_STATUS_SUCCESS;  // result of reading a header
  std::uint32_t channels = 3;                             // channels of each picture
  nvimgcodecSampleDataType_t samples = NVIMGCODEC_SAMPLE_DATA_TYPE_UINT8;
  nvimgcodecStatus_t waiting = NVIMGCODEC_STATUS_SUCCESS;  // result of waiting for a batch
  nvimgcodecStatus_t loading = NVIMGCODEC_STATUS_SUCCESS;
  std::vector<double_call> calls;
  std::string made;  // a letter for each decoder, in order of creation
  int alive = 0;     // objects not yet destroyed
  std::size_t working = 10'000;
  std::vector<void*> given;  // memory from the allocators, which the decoders have written
};

/// Returns the state behind the fake functions of nvimgcodec.h. The program starts with the initial
/// state.
nvimgcodec_double& the_double();

}  // namespace test
