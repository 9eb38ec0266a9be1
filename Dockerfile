# One target for each program: driver (the default) and contractd. `make image`
# builds both. The base images are arguments, for a mirror or a pinned digest;
# any base with CA certificates will do.
ARG BUILD_IMAGE=docker.io/library/golang:1.26
ARG BASE_IMAGE=gcr.io/distroless/static-debian12:nonroot@sha256:afa5c872c891853ca7fcf1f12c3edb23f7eeef36189728842dd51042ff57f7ab

# Programs are cross-compiled, so that no platform has to be emulated.
FROM --platform=${BUILDPLATFORM} ${BUILD_IMAGE} AS build
ENV CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false"
WORKDIR /src

FROM build AS build-driver
COPY go.mod go.sum ./
RUN go mod download
COPY pkg pkg
COPY cmd/contract-cosi-driver cmd/contract-cosi-driver
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=dev
# gRPC's page of traces, which no one can reach here, is made from a template, and with
# templates the linker keeps every call of the SDKs: 40 MiB instead of 28.
RUN GOOS=${TARGETOS} GOARCH=${TARGETARCH} go build -tags grpcnotrace -ldflags "-s -w -buildid= -X main.release=${VERSION}" -o /out/contract-cosi-driver ./cmd/contract-cosi-driver

FROM build AS build-contractd
WORKDIR /src/cmd/contractd
COPY cmd/contractd/go.mod cmd/contractd/go.sum ./
RUN go mod download
COPY cmd/contractd ./
ARG TARGETOS
ARG TARGETARCH
RUN GOOS=${TARGETOS} GOARCH=${TARGETARCH} go build -ldflags "-s -w -buildid=" -o /out/contractd .

FROM ${BASE_IMAGE} AS contractd
LABEL org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build-contractd /out/contractd /contractd
USER 65532:65532
ENTRYPOINT ["/contractd"]

FROM ${BASE_IMAGE} AS driver
LABEL org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build-driver /out/contract-cosi-driver /contract-cosi-driver
USER 65532:65532
ENTRYPOINT ["/contract-cosi-driver"]
