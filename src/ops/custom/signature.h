// The signature of a custom operation: a C prototype that also says which tensors its pointers are, and of which shapes.
//   elements   double(double, int*)                      called for every element: a result, and another behind the pointer
//   buffers    void(const double*[n...], size_t=n, double*[n...])        called once, with the tensors' memory
// docs/custom_operations.md has the whole language.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/ir/type.h"
#include "src/runtime/status.h"

namespace weft::ops {

enum class CustomKind : int64_t { kElements = 0, kBuffers = 1 };

// A function's caller has its arguments on the stack.
inline constexpr size_t kMostCustomParameters = 64;

// Integers from the sizes that names stand for, as a program for a stack.
struct CustomExpression {
  enum class Op : uint8_t { kNumber, kName, kAdd, kSubtract, kMultiply, kDivide, kRemainder, kMin, kMax };
  struct Step {
    Op op = Op::kNumber;
    int64_t value = 0;  // of a number; a name's position in CustomSignature::names
  };
  std::vector<Step> steps;
  size_t position = 0;  // in the text

  // The name's position if there is nothing else, else -1.
  int64_t LoneName() const { return steps.size() == 1 && steps[0].op == Op::kName ? steps[0].value : -1; }
};

struct CustomParameter {
  enum class Role : uint8_t {
    kInput,         // const T*: an operand's memory (elements: one element of it)
    kInputValue,    // T: an operand by value (buffers: a scalar)
    kResult,        // T*
    kInOut,         // inout T*: an operand, copied to a result that the function finds there and changes
    kScratch,       // scratch T*: room that nobody reads afterwards
    kNumber,        // T=…: a number by value
    kNumberBehind,  // T*=…: the same behind a pointer, as Fortran takes it
  };
  Role role = Role::kInput;
  DType dtype = DType::kInvalid;
  size_t position = 0;  // in the text
  bool shaped = false;  // whether [dims] follow
  int64_t rest = -1;    // the name before `...`, which stands for any number of dimensions
  std::vector<CustomExpression> dims;
  CustomExpression number;  // of kNumber and kNumberBehind
  double real = 0;          // the same where the text has a literal that is no integer
  bool is_real = false;
};

enum class CustomReturn : uint8_t {
  kVoid,
  kResult,  // the first result (buffers: a scalar)
  kStatus,  // `status`: an int, 0 for success
  kError,   // `weft_error*`, NULL for success
};

// Immutable once parsed.
struct CustomSignature {
  CustomKind kind = CustomKind::kElements;
  std::string text;  // runs of spaces are one
  CustomReturn returns = CustomReturn::kVoid;
  DType return_dtype = DType::kInvalid;
  std::vector<CustomParameter> parameters;
  std::vector<std::string> names;

  // Errors quote the signature and count its characters from 1.
  static absl::StatusOr<CustomSignature> Parse(CustomKind kind, std::string_view text);

  size_t operands() const;
  size_t results() const;
  // Checks that the results' shapes follow from the operands'; the error says which one does not.
  absl::Status CheckShapesFollow() const;
  // Tells whether all tensors begin with the same `name...`, so that one call does for any number of examples.
  bool BatchesItself() const;

  // Checks the operands and gives the results' types. `said` are what somebody else says they are (a callback, a node), or none.
  absl::StatusOr<ir::Types> Results(std::span<const ir::Type* const> operands, std::span<const ir::Type> said) const;

  // The sizes in a call of such types: the numbers that names stand for, and the size of scratch.
  struct Sizes {
    std::vector<int64_t> numbers;        // per kNumber and kNumberBehind, in order; floats as their bits (of a double)
    std::vector<int64_t> scratch_bytes;  // per kScratch, in order
  };
  absl::StatusOr<Sizes> SizesFor(std::span<const ir::Type* const> operands, std::span<const ir::Type> results) const;
};

}  // namespace weft::ops
