// SPDX-License-Identifier: BSL-1.0
#include "ext/fake_nvimgcodec/fake_nvimgcodec.hpp"

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

namespace test {
fake_nvimgcodec& the_fake() {
  static fake_nvimgcodec made;
  return made;
}
}  // namespace test

namespace {

// A base class that counts the live objects.
struct counted {
  counted() { ++test::the_fake().alive; }
  counted(const counted&) = delete;
  counted& operator=(const counted&) = delete;
  ~counted() { --test::the_fake().alive; }
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
  nvimgcodecDeviceAllocator_t* on_device = nullptr;
  nvimgcodecPinnedAllocator_t* pinned = nullptr;
  std::vector<void*> own;

  // Allocates memory of each kind and writes to it, for work on `stream`. Returns false if there is
  // not enough memory.
  bool take(cudaStream_t stream, std::vector<void*>& all) const {
    if (on_device == nullptr) return true;
    const std::size_t bytes = test::the_fake().working;
    void* there = nullptr;
    void* here = nullptr;
    if (on_device->device_malloc(on_device->device_ctx, &there, bytes, stream) != 0) return false;
    all.push_back(there);
    if (pinned->pinned_malloc(pinned->pinned_ctx, &here, bytes, stream) != 0) return false;
    all.push_back(here);
    for (void* const one : {there, here}) std::memset(one, 1, bytes);
    return true;
  }
  void release(cudaStream_t stream, const std::vector<void*>& all) const {
    if (on_device == nullptr) return;
    const std::size_t bytes = test::the_fake().working;
    if (!all.empty()) on_device->device_free(on_device->device_ctx, all[0], bytes, stream);
    if (all.size() > 1) pinned->pinned_free(pinned->pinned_ctx, all[1], bytes, stream);
    on_device->device_free(on_device->device_ctx, nullptr, 0, stream);
  }
};
struct nvimgcodecFuture : counted {
  std::vector<nvimgcodecProcessingStatus_t> statuses;
};

extern "C" {

nvimgcodecStatus_t nvimgcodecInstanceCreate(nvimgcodecInstance_t* instance,
                                            const nvimgcodecInstanceCreateInfo_t*) {
  if (test::the_fake().loading != NVIMGCODEC_STATUS_SUCCESS) return test::the_fake().loading;
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
  info->plane_info[0].num_channels = test::the_fake().channels;
  info->plane_info[0].sample_type = test::the_fake().samples;
  return test::the_fake().header;
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
  if (test::the_fake().missing.find(letter_of(kind)) != std::string::npos) {
    return NVIMGCODEC_STATUS_INTERNAL_ERROR;
  }
  test::the_fake().made += letter_of(kind);
  *decoder = new nvimgcodecDecoder;
  (*decoder)->kind = kind;
  (*decoder)->device = params->device_id;
  (*decoder)->on_device = params->device_allocator;
  (*decoder)->pinned = params->pinned_allocator;
  (*decoder)->take(nullptr, (*decoder)->own);
  return NVIMGCODEC_STATUS_SUCCESS;
}

nvimgcodecStatus_t nvimgcodecDecoderDecode(nvimgcodecDecoder_t decoder,
                                           const nvimgcodecCodeStream_t* streams,
                                           const nvimgcodecImage_t* images, int count,
                                           const nvimgcodecDecodeParams_t*,
                                           nvimgcodecFuture_t* future) {
  *future = new nvimgcodecFuture;
  const cudaStream_t stream = images[0]->info.cuda_stream;
  std::vector<void*> working;
  const bool has_memory = decoder->take(stream, working);
  decoder->release(stream, working);
  test::the_fake().given.insert(test::the_fake().given.end(), working.begin(), working.end());
  if (!has_memory) return NVIMGCODEC_STATUS_ALLOCATOR_FAILURE;
  const char letter = letter_of(decoder->kind);
  int regions = 0;
  for (int i = 0; i < count; ++i) {
    const nvimgcodecImageInfo_t& info = images[i]->info;
    const bool can = streams[i]->word.find(letter) != std::string::npos;
    if (can)
      std::memset(info.buffer, letter, info.plane_info[0].height * info.plane_info[0].row_stride);
    nvimgcodecProcessingStatus_t status = test::the_fake().undecoded;
    if (can) status = NVIMGCODEC_PROCESSING_STATUS_SUCCESS;
    (*future)->statuses.push_back(status);
    regions += streams[i]->region ? 1 : 0;
  }
  test::the_fake().calls.push_back({decoder->kind, static_cast<std::size_t>(count), decoder->device,
                                    images[0]->info.buffer_kind, stream, regions});
  return NVIMGCODEC_STATUS_SUCCESS;
}

nvimgcodecStatus_t nvimgcodecFutureWaitForAll(nvimgcodecFuture_t) {
  return test::the_fake().waiting;
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
nvimgcodecStatus_t nvimgcodecDecoderDestroy(nvimgcodecDecoder_t one) {
  one->release(nullptr, one->own);
  return destroy(one);
}
nvimgcodecStatus_t nvimgcodecFutureDestroy(nvimgcodecFuture_t one) { return destroy(one); }

}  // extern "C"
