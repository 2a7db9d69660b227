//! Checks about talking to what is outside: sockets of services, and the network.

use crate::edit;
use crate::spec::{Away, SPEC, Seen, Spec};

const GROUP: &str = "sockets and network";
const NETWORK: &str = "the network namespace";
const FAMILIES: &str = "socket families by allow-list";

const LET_SOCKETS_THROUGH: Away =
    Away::Edited { what: "the filter's rows for sockets", edit: |plan, _| edit::let_through(plan, &["socket"]) };

pub(super) const ALL: &[Spec] = &[
    Spec {
        id: "B11",
        title: "abstract sockets of the host are not reached",
        group: GROUP,
        wall: NETWORK,
        probe: "connect-abstract",
        seen: Seen::OnHost(|_, canaries| canaries.named_was_reached()),
        ..SPEC
    },
    Spec {
        id: "B12",
        title: "sockets of services are not reached",
        group: GROUP,
        wall: "hidden names",
        probe: "connect-path",
        seen: Seen::OnHost(|_, canaries| canaries.path_was_reached()),
        ..SPEC
    },
    Spec {
        id: "G1",
        title: "listeners on the host's loopback are not reached",
        group: GROUP,
        wall: NETWORK,
        probe: "connect-tcp",
        seen: Seen::OnHost(|_, canaries| canaries.tcp_was_reached()),
        ..SPEC
    },
    Spec {
        id: "G27",
        title: "a lookup by datagram carries nothing out",
        group: GROUP,
        wall: NETWORK,
        probe: "send-datagram",
        seen: Seen::OnHost(|_, canaries| canaries.udp_was_reached()),
        ..SPEC
    },
    Spec {
        id: "C12",
        title: "AF_VSOCK is refused",
        group: GROUP,
        wall: FAMILIES,
        probe: "calls:AF_VSOCK",
        away: LET_SOCKETS_THROUGH,
        ..SPEC
    },
    Spec {
        id: "C13",
        title: "AF_ALG is refused",
        group: GROUP,
        wall: FAMILIES,
        probe: "calls:AF_ALG",
        away: LET_SOCKETS_THROUGH,
        ..SPEC
    },
    Spec {
        id: "C14",
        title: "raw and packet sockets are refused",
        group: GROUP,
        wall: "no capability; socket families by allow-list",
        probe: "calls:raw socket,packet socket",
        away: Away::EditedAsRoot {
            what: "dropping capabilities and the filter's rows for sockets",
            edit: |plan, _| {
                edit::keep_capabilities(plan);
                edit::let_through(plan, &["socket"]);
            },
        },
        ..SPEC
    },
    Spec {
        id: "C15",
        title: "netlink beyond routes is refused",
        group: GROUP,
        wall: "netlink protocols by allow-list",
        probe: "calls:netlink NETFILTER",
        away: LET_SOCKETS_THROUGH,
        ..SPEC
    },
];
