// SPDX-License-Identifier: BSL-1.0
#include "ext/nvimgcodec_double/double.hpp"

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

namespace test {
nvimgcodec_double& the_double() {
  static nvimgcodec_double made;
  return made;
}
}  // namespace test

namespace {

// Counted while it lives.
struct counted {
  counted() { ++test::the_double().alive; }
  counted(const counted&) = delete;
  counted& operator=(const counted&) = delete;
  ~counted() { --test::the_double().alive; }
};

template <class Handle>
nvimgcodecStatus_t destroy(Handle* handle) {
  delete handle;
  return NVIMGCODEC_STATUS_SUCCESS;
}

char letter_of(nvimgcodecBackendKind_t kind) {
  if (kind == NVIMGCODEC_BACKEND_KIND_CPU_ONLY) return 'c';
  return kind == NVIMGCODEC_BACKEND_KIND_HYBRID_CPU_GPU ? 'h' : 'g';
}

}  // namespace

struct nvimgcodecInstance : counted {};
struct nvimgcodecCodeStream : counted {
  std::string word;
  bool region = false;
};
struct nvimgcodecImage : counted {
  nvimgcodecImageInfo_t info{};
};
struct nvimgcodecDecoder : counted {
  nvimgcodecBackendKind_t kind{};
  int device = 0;
};
struct nvimgcodecFuture : counted {
  std::vector<nvimgcodecProcessingStatus_t> statuses;
};

extern "C" {

nvimgcodecStatus_t nvimgcodecInstanceCreate(nvimgcodecInstance_t* instance,
                                            const nvimgcodecInstanceCreateInfo_t*) {
  if (test::the_double().loading != NVIMGCODEC_STATUS_SUCCESS) return test::the_double().loading;
  *instance = new nvimgcodecInstance;
  return NVIMGCODEC_STATUS_SUCCESS;
}

nvimgcodecStatus_t nvimgcodecCodeStreamCreateFromHostMem(nvimgcodecInstance_t,
                                                         nvimgcodecCodeStream_t* stream,
                                                         const unsigned char* data,
                                                         std::size_t length,
                                                         const nvimgcodecCodeStreamView_t*) {
  *stream = new nvimgcodecCodeStream;
  (*stream)->word.assign(data + 3, data + length);
  return NVIMGCODEC_STATUS_SUCCESS;
}

nvimgcodecStatus_t nvimgcodecCodeStreamGetImageInfo(nvimgcodecCodeStream_t,
                                                    nvimgcodecImageInfo_t* info) {
  info->num_planes = 1;
  info->plane_info[0].width = info->plane_info[0].height = 2;
  info->plane_info[0].num_channels = 3;
  return NVIMGCODEC_STATUS_SUCCESS;
}

nvimgcodecStatus_t nvimgcodecCodeStreamGetSubCodeStream(nvimgcodecCodeStream_t whole,
                                                        nvimgcodecCodeStream_t* part,
                                                        const nvimgcodecCodeStreamView_t* view) {
  *part = new nvimgcodecCodeStream;
  (*part)->word = whole->word;
  (*part)->region = view->region.ndim == 2;
  return NVIMGCODEC_STATUS_SUCCESS;
}

nvimgcodecStatus_t nvimgcodecImageCreate(nvimgcodecInstance_t, nvimgcodecImage_t* image,
                                         const nvimgcodecImageInfo_t* info) {
  *image = new nvimgcodecImage;
  (*image)->info = *info;
  return NVIMGCODEC_STATUS_SUCCESS;
}

nvimgcodecStatus_t nvimgcodecDecoderCreate(nvimgcodecInstance_t, nvimgcodecDecoder_t* decoder,
                                           const nvimgcodecExecutionParams_t* params, const char*) {
  const nvimgcodecBackendKind_t kind = params->backends[params->num_backends - 1].kind;
  if (test::the_double().missing.find(letter_of(kind)) != std::string::npos) {
    return NVIMGCODEC_STATUS_INTERNAL_ERROR;
  }
  test::the_double().made += letter_of(kind);
  *decoder = new nvimgcodecDecoder;
  (*decoder)->kind = kind;
  (*decoder)->device = params->device_id;
  return NVIMGCODEC_STATUS_SUCCESS;
}

nvimgcodecStatus_t nvimgcodecDecoderDecode(nvimgcodecDecoder_t decoder,
                                           const nvimgcodecCodeStream_t* streams,
                                           const nvimgcodecImage_t* images, int count,
                                           const nvimgcodecDecodeParams_t*,
                                           nvimgcodecFuture_t* future) {
  *future = new nvimgcodecFuture;
  const char letter = letter_of(decoder->kind);
  int regions = 0;
  for (int i = 0; i < count; ++i) {
    const nvimgcodecImageInfo_t& info = images[i]->info;
    const bool can = streams[i]->word.find(letter) != std::string::npos;
    if (can)
      std::memset(info.buffer, letter, info.plane_info[0].height * info.plane_info[0].row_stride);
    nvimgcodecProcessingStatus_t status = test::the_double().undecoded;
    if (can) status = NVIMGCODEC_PROCESSING_STATUS_SUCCESS;
    (*future)->statuses.push_back(status);
    regions += streams[i]->region ? 1 : 0;
  }
  test::the_double().calls.push_back({decoder->kind, static_cast<std::size_t>(count),
                                      decoder->device, images[0]->info.buffer_kind,
                                      images[0]->info.cuda_stream, regions});
  return NVIMGCODEC_STATUS_SUCCESS;
}

nvimgcodecStatus_t nvimgcodecFutureWaitForAll(nvimgcodecFuture_t) {
  return test::the_double().waiting;
}

nvimgcodecStatus_t nvimgcodecFutureGetProcessingStatus(nvimgcodecFuture_t future,
                                                       nvimgcodecProcessingStatus_t* status,
                                                       std::size_t* size) {
  *size = future->statuses.size();
  for (const nvimgcodecProcessingStatus_t one : future->statuses) *status++ = one;
  return NVIMGCODEC_STATUS_SUCCESS;
}

nvimgcodecStatus_t nvimgcodecInstanceDestroy(nvimgcodecInstance_t one) { return destroy(one); }
nvimgcodecStatus_t nvimgcodecCodeStreamDestroy(nvimgcodecCodeStream_t one) { return destroy(one); }
nvimgcodecStatus_t nvimgcodecImageDestroy(nvimgcodecImage_t one) { return destroy(one); }
nvimgcodecStatus_t nvimgcodecDecoderDestroy(nvimgcodecDecoder_t one) { return destroy(one); }
nvimgcodecStatus_t nvimgcodecFutureDestroy(nvimgcodecFuture_t one) { return destroy(one); }

}  // extern "C"
