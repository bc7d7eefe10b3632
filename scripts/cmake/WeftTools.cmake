# Programs of our own: what the build itself needs, and the command that ships.

# The operation table as JSON: build/dev/bin/opdump > include/c_api/ops.json, then bindings/generate.
add_executable(opdump "${PROJECT_SOURCE_DIR}/src/tools/opdump.cc" "${PROJECT_SOURCE_DIR}/src/tools/op_facts.cc")
target_link_libraries(opdump PRIVATE weft_autodiff weft_ops weft_ir weft_runtime)

# The program `weft`, which ships beside the library and sees nothing of it but the C ABI. Each file of src/cli that registers
# a command is one.
if(NOT WEFT_SANITIZE)
  file(GLOB weft_cli_files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/cli/*.cc")
  add_executable(weft_cli ${weft_cli_files})
  file(RELATIVE_PATH weft_lib_from_bin "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_LIBDIR}")
  # Installing writes one run path over the other: as long as the build's, which therefore may not have the folder's name.
  set_target_properties(weft_cli PROPERTIES OUTPUT_NAME weft BUILD_RPATH_USE_ORIGIN ON INSTALL_RPATH "$ORIGIN/${weft_lib_from_bin}")
  target_compile_options(weft_cli PRIVATE -fvisibility=hidden -Wall -Wextra -Wno-missing-field-initializers
    $<$<BOOL:${WEFT_WERROR}>:-Werror>)
  target_include_directories(weft_cli PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(weft_cli PRIVATE weft weft_old_glibc_program ${CMAKE_DL_LIBS})
  target_link_options(weft_cli PRIVATE -static-libstdc++ -static-libgcc)
  # The command knows its own table: what shells complete is written by it.
  set(weft_completions "${PROJECT_BINARY_DIR}/completions")
  add_custom_command(TARGET weft_cli POST_BUILD
    COMMAND ${CMAKE_COMMAND} -E make_directory "${weft_completions}"
    COMMAND sh -c "\"$1\" completion bash > weft && \"$1\" completion zsh > _weft && \"$1\" completion fish > weft.fish"
            sh "$<TARGET_FILE:weft_cli>"
    WORKING_DIRECTORY "${PROJECT_BINARY_DIR}/completions" VERBATIM)
  file(MAKE_DIRECTORY "${weft_completions}")
endif()
