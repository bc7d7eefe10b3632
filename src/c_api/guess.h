// What somebody may have meant by a name that there is not; for texts of errors.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::c_api {

// "; did you mean 'matmul'? ", or "; " if no name is near.
std::string DidYouMean(std::string_view word, std::span<const std::string_view> names);

}  // namespace weft::c_api
