#!/bin/sh
# An API server of Kubernetes, built from the source package that Debian makes its `kubectl` of, the
# database that it wants, and `kubectl`, where they are missing. Some five minutes on two cores.
set -eu

target=$PWD/build/kubernetes
missing=
command -v etcd >/dev/null || missing="$missing etcd-server"
command -v kubectl >/dev/null || missing="$missing kubernetes-client"
test -x "$target/kube-apiserver" || missing="$missing golang-go jq make rsync"
test -z "$missing" || { apt-get update -qq && apt-get install -qq -y --no-install-recommends $missing >/dev/null; }
test ! -x "$target/kube-apiserver" || exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$target" "$work/sources" "$work/lists/partial"
for file in /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources; do
    test ! -e "$file" || sed 's/^Types: deb$/Types: deb-src/; s/^deb /deb-src /' "$file" >"$work/sources/${file##*/}"
done
set -- -qq -o Dir::Etc::SourceList="$work/sources/sources.list" \
    -o Dir::Etc::SourceParts="$work/sources" -o Dir::State::Lists="$work/lists"
apt-get "$@" update
cd "$work"
apt-get "$@" -o APT::Sandbox::User=root source --download-only kubernetes >/dev/null
tar xzf kubernetes_*.orig.tar.gz
cd kubernetes-*/
# as the package is built: in the place where Go looks for it, and without anything from outside
mkdir -p .go/src/k8s.io
ln -s ../../.. .go/src/k8s.io/kubernetes
env HOME="$work" GOPATH="$PWD/.go" GOCACHE="$work/cache" CGO_ENABLED=0 make WHAT=cmd/kube-apiserver >/dev/null
cp _output/bin/kube-apiserver "$target/"
