// One operation called from C: collects operands and attributes by position, then records. The generated bodies are made
// of these calls and nothing else.
#pragma once

#include <initializer_list>

#include "src/c_api/guard.h"
#include "src/ir/op_def.h"
#include "src/lazy/engine.h"
#include "weft_base.h"

namespace weft::c_api {

// Thread rule: one thread. The first thing that is wrong is what Record reports.
class OpCall {
 public:
  OpCall(const ir::OpDef& op, weft_context* ctx);

  void Operand(weft_tensor* tensor);
  void Optional(weft_tensor* tensor);
  void Variadic(weft_tensor* const* tensors, size_t count);

  void SetInt(size_t at, int64_t value) { attrs_.set(at, value); }
  void SetDouble(size_t at, double value) { attrs_.set(at, value); }
  void SetBool(size_t at, int32_t value) { attrs_.set(at, int64_t{value != 0}); }
  void SetEnum(size_t at, int32_t value);
  void SetEnumByName(size_t at, const char* data, size_t length);
  void SetDType(size_t at, uint32_t value);
  void SetInts(size_t at, const int64_t* data, size_t count);
  void SetDoubles(size_t at, const double* data, size_t count);
  void SetText(size_t at, const char* data, size_t length);
  // An attribute of weft_op_apply, in whatever type it comes.
  void SetAny(size_t at, int32_t type, int64_t i, double d, const void* data, size_t count);
  // Bits of an options struct that no attribute has.
  void CheckPresent(uint64_t present, uint64_t known);

  void Fail(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  absl::Status Record(std::initializer_list<weft_tensor**> outs);
  // For weft_op_apply: any number of results.
  absl::Status RecordInto(weft_tensor** outs, size_t capacity, size_t* out_count);

 private:
  absl::Status Run(lazy::Tensors* results);
  absl::Status Bad(size_t at, std::string_view what);

  const ir::OpDef& op_;
  lazy::Engine* engine_ = nullptr;
  absl::Status status_;
  absl::InlinedVector<lazy::Tensor*, 4> operands_;
  ir::Attrs attrs_;
};

// Operations with tensors in, one tensor out, and nothing else: most elementwise ones.
weft_error* RecordPlain(const ir::OpDef& op, weft_context* ctx, std::initializer_list<weft_tensor*> operands,
                        weft_tensor** out) noexcept;

}  // namespace weft::c_api
