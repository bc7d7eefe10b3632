// weft_tensor_to_string.
#include "src/c_api/context.h"
#include "src/c_api/options.h"
#include "src/c_api/print.h"
#include "weft.h"

using namespace weft;
using namespace weft::c_api;

namespace {

constexpr uint64_t kAll = WEFT_PRINT_HAS_THRESHOLD | WEFT_PRINT_HAS_PRECISION | WEFT_PRINT_HAS_LINE_WIDTH;

}  // namespace

extern "C" weft_error* weft_tensor_to_string(weft_tensor* tensor, const weft_print_options* options,
                                             weft_blob** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> t, GetTensor(tensor, "tensor"));
    weft_print_options o;
    WEFT_RETURN_IF_ERROR(ReadOptions(options, sizeof(o), "weft_print_options", &o));
    if (o.threshold < 0 || o.edge_items < 0 || o.edge_items > 1000 || o.precision < -1 || o.precision > 17 ||
        o.line_width < 0) {
      return UserError("weft_print_options: threshold is ", o.threshold, ", edge_items ", o.edge_items, ", precision ",
                       o.precision, ", line_width ", o.line_width,
                       "; threshold and line_width are 0 or more, edge_items 0 to 1000, precision -1 to 17");
    }
    WEFT_RETURN_IF_ERROR(CheckPresent("weft_print_options", o.present, kAll));
    const auto says = [&](uint64_t bit, int64_t value) { return value != 0 || (o.present & bit) != 0; };
    PrintOptions print;
    if (says(WEFT_PRINT_HAS_THRESHOLD, o.threshold)) print.threshold = o.threshold;
    if (o.edge_items != 0) print.edge_items = o.edge_items;
    if (says(WEFT_PRINT_HAS_PRECISION, o.precision)) print.precision = o.precision < 0 ? 0 : o.precision;
    if (says(WEFT_PRINT_HAS_LINE_WIDTH, o.line_width)) print.line_width = o.line_width;
    const int64_t size = BytesOf(t->dtype());
    const FloatScope floats;
    WEFT_ASSIGN_OR_RETURN(std::string text, FormatTensor(t->dtype(), t->dims(), print,
                                                         [&](int64_t first, int64_t, std::span<std::byte> to) {
                                                           return t->engine().ReadBytes(t.get(), first * size, to);
                                                         }));
    if (o.header != 0)
      text = absl::StrCat(NameOf(t->dtype()), DimsToString(t->dims()), " on ", t->sharding().mesh().name(), "\n", text);
    return MakeBlob(std::move(text), out);
  });
}
