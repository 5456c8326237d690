#!/bin/sh
# An engine of Docker, its commands `compose` and `buildx`, and what makes a stand-in of the base
# image: from Debian's or Ubuntu's packages, where they are missing.
set -eu

installed() { apt-get install -qq -y --no-install-recommends "$@" >/dev/null; }

if ! docker info >/dev/null 2>&1; then
    apt-get update -qq
    command -v dockerd >/dev/null || installed docker.io iptables
    command -v mmdebstrap >/dev/null || installed mmdebstrap
fi
docker compose version >/dev/null 2>&1 && docker buildx version >/dev/null 2>&1 && exit 0

apt-get update -qq
# Ubuntu's names; Debian's, from trixie on
installed docker-compose-v2 docker-buildx 2>/dev/null || installed docker-buildx docker-compose 2>/dev/null || {
    # bookworm has neither; trixie's are single programs that want nothing newer
    trixie=$(mktemp -d)
    trap 'rm -rf "$trixie"' EXIT
    mkdir -p "$trixie/sources" "$trixie/lists/partial"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources; do
        test ! -e "$file" || sed 's/bookworm/trixie/g' "$file" >"$trixie/sources/${file##*/}"
    done
    set -- -qq -o Dir::Etc::SourceList="$trixie/sources/sources.list" \
        -o Dir::Etc::SourceParts="$trixie/sources" -o Dir::State::Lists="$trixie/lists"
    apt-get "$@" update
    (cd "$trixie" && apt-get "$@" -o APT::Sandbox::User=root download docker-compose docker-buildx)
    dpkg --install "$trixie"/*.deb
}
docker compose version
docker buildx version
