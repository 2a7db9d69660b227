#!/usr/bin/env bash
# The step of action.yml. Takes COFFERDAM_ARCHIVE, COFFERDAM_SHA256 and COFFERDAM_APPARMOR, and of the runner RUNNER_TEMP and
# GITHUB_PATH; leaves the programs in RUNNER_TEMP/cofferdam and that directory in the PATH of the steps that follow.
set -euo pipefail

fail() {
    echo "::error::cofferdam: $*" >&2
    exit 1
}

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
archive=${COFFERDAM_ARCHIVE:-}
apparmor=${COFFERDAM_APPARMOR:-auto}
: "${RUNNER_TEMP:?}" "${GITHUB_PATH:?}"
prefix=$RUNNER_TEMP/cofferdam
tarball=$RUNNER_TEMP/cofferdam.tar.gz

[[ $(uname -sm) == 'Linux x86_64' ]] || fail "there are programs for Linux on x86-64 alone, not for $(uname -sm)"
case $apparmor in auto | always | never) ;; *) fail "apparmor is auto, always or never, not '$apparmor'" ;; esac

build() {
    command -v musl-gcc >/dev/null || { sudo apt-get update -q && sudo apt-get install -q -y musl-tools; }
    (
        cd "$checkout"
        rustup target add x86_64-unknown-linux-musl
        cargo xtask dist --out "$RUNNER_TEMP/cofferdam-dist"
    )
    cp "$RUNNER_TEMP"/cofferdam-dist/*.tar.gz "$tarball"
}

fetch() {
    [[ ${COFFERDAM_SHA256:-} =~ ^[0-9a-f]{64}$ ]] || fail 'sha256 has to be the 64 digits that SHA256SUMS has for the tarball'
    case $archive in
    https://* | file://*) curl --fail --silent --show-error --location --proto-redir =https --output "$tarball" "$archive" ||
        fail "cannot get $archive" ;;
    *://*) fail "an address begins with https:// or file://, not as $archive" ;;
    *) cp "$archive" "$tarball" ;;
    esac
    echo "$COFFERDAM_SHA256  $tarball" | sha256sum --check --status || {
        rm -f "$tarball"
        fail "$archive is not the file that sha256 names"
    }
}

restricted() {
    [[ $(cat /proc/sys/kernel/apparmor_restrict_unprivileged_userns 2>/dev/null) == 1 ]]
}

# For where the programs lie here, which is not where the profile of the package expects them.
load_profile() {
    sed "s#^profile cofferdam [^ ]*#profile cofferdam $prefix/bin/sandbox{,-verify}#" "$prefix/share/cofferdam/apparmor/cofferdam" |
        sudo tee /etc/apparmor.d/cofferdam >/dev/null
    sudo apparmor_parser --replace /etc/apparmor.d/cofferdam
}

if [[ -n $archive ]]; then fetch; else build; fi
rm -rf "$prefix"
mkdir -p "$prefix"
tar -xzf "$tarball" --strip-components=1 -C "$prefix"
rm -f "$tarball"
if [[ $apparmor == always ]] || { [[ $apparmor == auto ]] && restricted; }; then load_profile; fi
"$prefix/bin/sandbox" --version
echo "$prefix/bin" >>"$GITHUB_PATH"
