# Builds Weft and runs its tests from nothing: docker build .
# The result holds the installed library, its headers and the program weft below /usr/local.
FROM debian:bookworm AS build
COPY . /weft
WORKDIR /weft
RUN apt-get update && scripts/test --quick && cmake --install build/release --prefix /usr/local

FROM debian:bookworm-slim
COPY --from=build /usr/local /usr/local
RUN ldconfig && weft version
