//! The session's way out as the supervisor sees it: the egress process, the process that connects to published ports, secrets
//! that requests get outside, and what was sent with no way out.

pub(crate) mod credentials;
pub(crate) mod egress_process;
pub(crate) mod no_route;
pub(crate) mod port_dialer;
pub(crate) mod refuser;

use crate::network::egress_process::Egress;
use crate::network::no_route::Counters;
use crate::network::port_dialer::Dialer;
use crate::network::refuser::Refuser;

/// What a session has of these.
#[derive(Default)]
pub(crate) struct Network {
    pub(crate) egress: Option<Egress>,
    /// Where every host is refused: until a program inside asks for one.
    pub(crate) refuser: Option<Refuser>,
    /// Connects to published ports.
    pub(crate) dialer: Option<Dialer>,
    pub(crate) counters: Option<Counters>,
}
