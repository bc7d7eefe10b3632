// JSON of the library (its description, reports) as the values that commands print.
#pragma once

#include <string_view>

#include "src/cli/report.h"

namespace weft::cli {

// False for what is no JSON text. Numbers that are no int64_t become their spelling, null an empty text.
bool FromJson(std::string_view text, Value* out);

// Fields of an object; an empty one for any other value.
const Fields& FieldsOf(const Value& value);
// The object's field of that name: null if there is none.
const Value* FieldOf(const Value& value, std::string_view name);

}  // namespace weft::cli
