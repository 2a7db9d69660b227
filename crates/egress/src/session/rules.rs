//! The rules of the running session: what policy says, with the answers that were given meanwhile. Owns them and the
//! questions about hosts that no rule is about; the verdict itself is `decide`'s, and the operator is asked by the supervisor.
//! Asked by the DNS server and by every connection.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use cofferdam_policy::{Endpoint, Host, OnUnknown, Ruled, with_port};
use cofferdam_reach::decide::{Decided, Denial, Rules, Verdict, allow_it, answered, not_approved};
use cofferdam_reach::message::Told;

use crate::session::supervisor_link::{Answer, Link};

#[derive(Debug)]
pub(crate) struct SessionRules {
    rules: RefCell<Rules>,
    /// What happens to a place that no rule is about.
    unknown: Ruled<OnUnknown>,
    link: Rc<Link>,
}

impl SessionRules {
    pub(crate) fn new(rules: Rules, unknown: Ruled<OnUnknown>, link: Rc<Link>) -> Rc<SessionRules> {
        Rc::new(SessionRules { rules: RefCell::new(rules), unknown, link })
    }

    pub(crate) fn on_unknown(&self) -> OnUnknown {
        self.unknown.value
    }

    /// What is said about a place, by policy or by the answer to a question.
    pub(crate) async fn decide(&self, host: &Host, port: u16, from: Option<SocketAddr>) -> Result<Decided, Denial> {
        let verdict = self.rules.borrow().host(host, port);
        match verdict {
            Verdict::Allowed(decided) => Ok(decided),
            Verdict::Denied(denial) => Err(denial),
            Verdict::Unknown if self.unknown.value == OnUnknown::Deny => Err(self.rules.borrow().unlisted(host, port)),
            Verdict::Unknown if self.unknown.value == OnUnknown::AllowAndLog => {
                let rule = "unknown.verdict = \"allow-and-log\"".to_owned();
                Ok(Decided { rule, origin: self.unknown.origin.clone() })
            }
            Verdict::Unknown => match self.link.ask(host, port, &[], from).await {
                Some(Answer { allowed: true, origin, .. }) => {
                    let rule = format!("{host}:{port}");
                    Ok(Decided { rule, origin: answered(origin) })
                }
                Some(Answer { origin, .. }) => Err(Denial {
                    rule: "unknown.verdict = \"ask\"".to_owned(),
                    origin: Some(self.unknown.origin.clone()),
                    why: not_approved(&with_port(host, port), &origin),
                    remedy: format!("approve it when it is asked about, or {}", allow_it(host, port)),
                }),
                None => Err(self.rules.borrow().unlisted(host, port)),
            },
        }
    }

    /// Whether a lookup of this name may leave.
    pub(crate) fn name(&self, host: &Host) -> Verdict {
        self.rules.borrow().name(host)
    }

    /// Whether every address that a name resolved to may be connected to, by policy or by the answer to a question about
    /// the name at these addresses.
    pub(crate) async fn addresses(
        &self,
        host: &Host,
        port: u16,
        found: &[IpAddr],
        from: SocketAddr,
    ) -> Result<(), Denial> {
        let (denial, asked) = {
            let rules = self.rules.borrow();
            let Err(denial) = rules.addresses(host, port, found) else { return Ok(()) };
            (denial, rules.could_be_paired(host, port, found))
        };
        let Some(asked) = asked.filter(|_| self.unknown.value == OnUnknown::Ask) else { return Err(denial) };
        match self.link.ask(host, port, &asked, Some(from)).await {
            Some(Answer { allowed: true, .. }) => Ok(()),
            Some(Answer { origin, .. }) => Err(Denial {
                rule: "unknown.verdict = \"ask\"".to_owned(),
                origin: Some(self.unknown.origin.clone()),
                why: not_approved(&Endpoint::at(host, port, &asked).to_string(), &origin),
                remedy: format!("approve it when it is asked about, or {}", denial.remedy),
            }),
            None => Err(denial),
        }
    }

    pub(crate) fn request(&self, host: &Host, port: u16, method: &str, path: &str) -> Verdict {
        self.rules.borrow().request(host, port, method, path)
    }

    /// Whether a rule is about requests to this place.
    pub(crate) fn inspects(&self, host: &Host, port: u16) -> bool {
        self.rules.borrow().inspects(host, port)
    }

    pub(crate) fn allows_address(&self, to: SocketAddr) -> bool {
        self.rules.borrow().host(&Host::Address(to.ip()), to.port()).is_allowed()
    }

    pub(crate) fn set_own(&self, own: Vec<IpAddr>) {
        self.rules.borrow_mut().set_own(own);
    }

    /// Takes in what the supervisor says: an answer may stay valid for the session.
    pub(crate) fn apply(&self, told: Told) {
        match told {
            Told::Answer { id, allowed, keep, origin } => {
                for endpoint in keep.iter().filter_map(|keep| Endpoint::parse(keep).ok()) {
                    let mut rules = self.rules.borrow_mut();
                    let origin = answered(origin.clone());
                    if allowed { rules.grant(endpoint, origin) } else { rules.refuse(endpoint, origin) }
                }
                self.link.answer(id, Answer { allowed, kept: !keep.is_empty(), origin });
            }
        }
    }
}
