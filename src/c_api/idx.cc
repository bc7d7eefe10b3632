// weft_idx_read.
#include "src/data/idx.h"

#include "src/c_api/context.h"
#include "weft.h"

using namespace weft;
using namespace weft::c_api;

extern "C" weft_error* weft_idx_read(weft_context* ctx, const char* path, size_t path_length, weft_device* device,
                                     weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_NOT_NULL(path);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->BeforeWork());
    WEFT_ASSIGN_OR_RETURN(const std::string file, Path(path, path_length));
    WEFT_ASSIGN_OR_RETURN(const lazy::Where place, WhereOf(*context, device));
    WEFT_ASSIGN_OR_RETURN(HostTensor data, ReadIdx(PosixFileSystem(), file));
    WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> tensor, context->WithPressure(data.bytes().size(), [&] {
      return context->engine().FromHost(place, data.dtype(), data.dims(), data.bytes(),
                                        CurrentLocation(context->engine()));
    }));
    return MakeTensor(std::move(tensor), out);
  });
}
