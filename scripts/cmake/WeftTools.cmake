# Small programs that the build itself needs; nothing of them ships.

# The operation table as JSON: build/dev/bin/opdump > include/c_api/ops.json, then include/c_api/generate.py.
add_executable(opdump "${PROJECT_SOURCE_DIR}/src/tools/opdump.cc")
target_link_libraries(opdump PRIVATE weft_ops weft_ir weft_runtime)
