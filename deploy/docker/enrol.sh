#!/bin/sh
# Make a server's keys, and a join token for each name that is given, where there are none yet.
#   fedpace-enrol HOST NAME...
set -eu
umask 077
host=$1
shift
[ -f keys/ca.key ] || fedpace keys init --host "$host"
for name in "$@"; do
  [ -s "tokens/$name.token" ] || fedpace keys invite "$name" > "tokens/$name.token"
done
