// Strings of JSON.
#pragma once

#include <string>
#include <string_view>

namespace weft {

// With its quotes. Bytes above 127 stay: they are UTF-8 if the text is.
std::string JsonText(std::string_view text);

}  // namespace weft
