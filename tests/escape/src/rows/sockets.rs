//! Rows about socket families and netlink protocols.

use cofferdam_testkit::edit;

use crate::row::{Off, ROW, Row};

const ALLOW_LIST: &str = "socket families by allow-list";

pub(crate) static C12: Row = Row {
    what: "AF_VSOCK",
    control: ALLOW_LIST,
    off: Off::Edit(|plan, _| edit::let_through(plan, &["socket"])),
    ..ROW
};

pub(crate) static C13: Row = Row {
    what: "AF_ALG, AF_RXRPC, AF_KEY, AF_TIPC and the rest",
    control: ALLOW_LIST,
    off: Off::Edit(|plan, _| edit::let_through(plan, &["socket", "socketpair"])),
    ..ROW
};

pub(crate) static C14: Row = Row {
    what: "raw and packet sockets",
    control: "no capability; families by allow-list",
    off: Off::Edit(|plan, _| {
        edit::keep_capabilities(plan);
        edit::let_through(plan, &["socket"]);
    }),
    off_as_root: true,
    ..ROW
};

pub(crate) static C15: Row = Row {
    what: "netlink protocols",
    control: "ROUTE only",
    off: Off::Edit(|plan, _| edit::let_through(plan, &["socket"])),
    ..ROW
};
