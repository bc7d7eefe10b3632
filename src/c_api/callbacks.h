// Values that pass between callers and us in more than one function: descriptions of tensors, errors of their functions,
// their data, lists of results.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "src/c_api/context.h"
#include "weft_tensor.h"

namespace weft::c_api {

inline weft_tensor_info InfoOf(DType dtype, std::span<const int64_t> dims) {
  weft_tensor_info info = {};
  info.dtype = static_cast<weft_dtype>(dtype);
  info.rank = static_cast<uint32_t>(dims.size());
  std::ranges::copy(dims, info.dims);
  return info;
}

// The status of an error that a callback returned, which is released.
inline absl::Status TakeError(void* error) {
  auto* const taken = static_cast<weft_error*>(error);
  absl::Status status = FromError(taken);
  weft_error_release(taken);
  return status.ok() ? absl::UnknownError("an error that says OK") : status;
}

// Handles for several tensors, or none.
inline absl::Status GiveTensors(std::span<const Ref<lazy::Tensor>> tensors, weft_tensor** outputs) {
  std::vector<weft_tensor*> handles;
  absl::Cleanup undo = [&] {
    for (weft_tensor* handle : handles) ReleaseHandle(handle, HandleType::kTensor);
  };
  handles.reserve(tensors.size());
  for (const Ref<lazy::Tensor>& tensor : tensors) {
    weft_tensor* handle = nullptr;
    WEFT_RETURN_IF_ERROR(MakeTensor(tensor, &handle));
    handles.push_back(handle);
  }
  std::move(undo).Cancel();
  std::ranges::copy(handles, outputs);
  return absl::OkStatus();
}

// The data that a caller handed over with a function. It is ended once, when nobody can call the function any more.
class UserData {
 public:
  UserData(void* user_data, weft_release_fn release) : user_data_(user_data), release_(release) {}
  ~UserData() { RunRelease(release_, user_data_); }
  UserData(const UserData&) = delete;
  UserData& operator=(const UserData&) = delete;
  // The same shared, or the release has run.
  static std::shared_ptr<UserData> Share(void* user_data, weft_release_fn release) {
    try {
      return std::make_shared<UserData>(user_data, release);
    } catch (...) {
      RunRelease(release, user_data);
      throw;
    }
  }

 private:
  void* const user_data_;
  const weft_release_fn release_;
};

}  // namespace weft::c_api
