# Derived files that are not committed (bindings/generate --list): written into the build tree under the paths that they would have in
# the source tree, so that includes find them. One command writes all, in half a second, and leaves alone what does not change.
find_package(Python3 COMPONENTS Interpreter REQUIRED)
set(WEFT_GENERATED_DIR "${PROJECT_BINARY_DIR}/generated")
set(weft_generator "${PROJECT_SOURCE_DIR}/bindings/generate")
set(weft_described "${PROJECT_SOURCE_DIR}/include/c_api/weft_api.json")
file(GLOB_RECURSE weft_generator_code CONFIGURE_DEPENDS "${weft_generator}/*.py")

# Operations fill files of sixty, so the number of files changes: it is asked for again whenever the description has changed.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${weft_generator_code} "${weft_described}")
execute_process(COMMAND "${Python3_EXECUTABLE}" "${weft_generator}" --list OUTPUT_VARIABLE weft_generated_list COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "built [^\n]+" weft_generated_names "${weft_generated_list}")
list(TRANSFORM weft_generated_names REPLACE "^built " "")
list(TRANSFORM weft_generated_names PREPEND "${WEFT_GENERATED_DIR}/" OUTPUT_VARIABLE weft_generated_files)
add_custom_command(OUTPUT ${weft_generated_files} DEPENDS ${weft_generator_code} "${weft_described}" "${weft_generator}/api.json"
    "${PROJECT_SOURCE_DIR}/include/c_api/ops.json" "${PROJECT_SOURCE_DIR}/src/ops/special.list"
  COMMAND "${Python3_EXECUTABLE}" "${weft_generator}" --build "${WEFT_GENERATED_DIR}"
  COMMENT "Files that follow from the descriptions" VERBATIM)
add_custom_target(weft_generated DEPENDS ${weft_generated_files})
# Headers are among them: whatever is compiled with the layers' flags waits for all.
add_dependencies(weft_flags weft_generated)

# weft_generated_sources(out folder): those of a folder that are compiled.
function(weft_generated_sources out folder)
  set(files ${weft_generated_names})
  list(FILTER files INCLUDE REGEX "^${folder}/.*\\.cc$")
  list(TRANSFORM files PREPEND "${WEFT_GENERATED_DIR}/")
  set(${out} "${files}" PARENT_SCOPE)
endfunction()
