//! `sandbox top`: the sessions that run, on the whole screen, with what each uses now. Owns the rate between two looks, the order and the
//! picture; which sessions there are and what they use is `supervisor`'s to know. Ends no session: that is `sandbox kill`.

use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cofferdam_kernel::timing::seconds_now;
use cofferdam_supervisor::{UsedNow, live_sessions, used_now};
use cofferdam_wire::session::{Session, short};
use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::{Constraint, Layout};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use crate::commands::inbox::InboxError;
use crate::commands::sessions::age;
use crate::environment::own_state;
use crate::full_screen::{bold, coloured, is_interrupt, next_key, on_whole_screen, titled, warning};
use crate::render::output::{bytes, escaped};

const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Order {
    #[default]
    Cpu,
    Memory,
    Age,
}

/// One session, and how much of a CPU it used since the look before.
#[derive(Debug)]
struct Row {
    session: Session,
    used: UsedNow,
    percent: f64,
}

#[derive(Debug, Default)]
struct Top {
    rows: Vec<Row>,
    order: Order,
    looked: Option<Instant>,
}

pub(crate) fn top() -> Result<ExitCode, InboxError> {
    let state = own_state().map_err(cofferdam_host::SurveyError::from)?;
    let result = on_whole_screen(|terminal| {
        let mut top = Top::default();
        loop {
            if top.looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
                top.look(&state)?;
            }
            terminal.draw(|frame| draw(frame, &top, seconds_now()))?;
            match next_key(LOOK / 4)? {
                Some(key) if key.code == KeyCode::Char('q') || is_interrupt(key.code, key.modifiers) => return Ok(()),
                Some(key) => top.key(key.code),
                None => {}
            }
        }
    });
    result.map(|()| ExitCode::SUCCESS).map_err(|source| InboxError::NoTerminal { source })
}

impl Top {
    fn look(&mut self, state: &Path) -> io::Result<()> {
        let sessions = live_sessions(state)?;
        let supervisors: Vec<i32> = sessions.iter().map(|session| session.pid).collect();
        let used = used_now(&supervisors);
        self.take(sessions.into_iter().zip(used).collect(), Instant::now());
        Ok(())
    }

    fn take(&mut self, now: Vec<(Session, UsedNow)>, at: Instant) {
        let passed = self.looked.map(|looked| at.saturating_duration_since(looked).as_secs_f64());
        let before = std::mem::take(&mut self.rows);
        let row = |(session, used): (Session, UsedNow)| {
            let known = before.iter().find(|row| row.session.id == session.id).map(|row| row.used.cpu_seconds);
            let spent = known.zip(passed).filter(|(_, passed)| *passed > 0.0);
            // A process that ended takes its time along, so that the sum can shrink.
            let percent = spent.map_or(0.0, |(known, passed)| ((used.cpu_seconds - known) / passed * 100.0).max(0.0));
            Row { session, used, percent }
        };
        self.rows = now.into_iter().map(row).collect();
        self.looked = Some(at);
        self.sort();
    }

    fn sort(&mut self) {
        match self.order {
            Order::Cpu => self.rows.sort_by(|a, b| b.percent.total_cmp(&a.percent)),
            Order::Memory => self.rows.sort_by_key(|row| std::cmp::Reverse(row.used.memory)),
            Order::Age => self.rows.sort_by(|a, b| a.session.started.total_cmp(&b.session.started)),
        }
    }

    fn key(&mut self, key: KeyCode) {
        self.order = match key {
            KeyCode::Char('c') => Order::Cpu,
            KeyCode::Char('m') => Order::Memory,
            KeyCode::Char('a') => Order::Age,
            _ => return,
        };
        self.sort();
    }
}

fn draw(frame: &mut Frame<'_>, top: &Top, now: f64) {
    let [table, keys] = Layout::vertical([Constraint::Min(3), Constraint::Length(1)]).areas(frame.area());
    let (memory, cpu) =
        top.rows.iter().fold((0, 0.0), |(memory, cpu), row| (memory + row.used.memory, cpu + row.percent));
    let title = format!("sandbox top: {} sessions, {cpu:.0} % of a CPU, {}", top.rows.len(), bytes(memory));
    let heading = format!(
        "  {:<14} {:>6} {:>10} {:>9} {:>6} {:>6}  {}",
        "SESSION", "CPU %", "MEMORY", "CPU TIME", "PROCS", "AGE", "COMMAND"
    );
    let mut lines = vec![Line::styled(heading, bold())];
    lines.extend(top.rows.iter().map(|row| line(row, now)));
    if top.rows.is_empty() {
        lines.push(Line::from("  no session runs"));
    }
    frame.render_widget(Paragraph::new(lines).block(titled(&title)), table);
    frame.render_widget(Paragraph::new("order by [c] CPU [m] memory [a] age   [q] quit"), keys);
}

fn line(row: &Row, now: f64) -> Line<'static> {
    let Row { session, used, percent } = row;
    let name: String = session.name.as_deref().unwrap_or_else(|| short(&session.id)).chars().take(14).collect();
    let project = session.project.as_ref().and_then(|project| project.file_name()).map(|name| name.to_string_lossy());
    let place = project.map_or_else(String::new, |name| format!("  in {name}"));
    let text = format!(
        "  {:<14} {percent:>6.1} {:>10} {:>8.1}s {:>6} {:>6}  {}{}",
        escaped(&name),
        bytes(used.memory),
        used.cpu_seconds,
        used.processes,
        age(now - session.started),
        escaped(&session.argv.join(" ")),
        escaped(&place),
    );
    // What keeps a whole CPU busy.
    if *percent >= 90.0 { Line::styled(text, coloured(warning())) } else { Line::from(text) }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn session(id: &str, name: Option<&str>, argv: &str) -> Session {
        Session {
            version: 1,
            id: format!("local-0a-{id}"),
            name: name.map(str::to_owned),
            pid: 7,
            pid_namespace: String::new(),
            argv: argv.split(' ').map(str::to_owned).collect(),
            cwd: "/home/you/project".into(),
            project: Some("/home/you/project".into()),
            mode: "dynamic".to_owned(),
            started: 1000.0,
        }
    }

    fn drawn(top: &Top) -> String {
        let mut terminal = Terminal::new(TestBackend::new(90, 6)).expect("memory");
        terminal.draw(|frame| draw(frame, top, 1060.0)).expect("memory");
        terminal.backend().to_string()
    }

    #[test]
    fn sessions_are_shown_with_what_they_use_in_the_order_that_is_chosen() {
        let mut top = Top::default();
        assert!(drawn(&top).contains("no session runs"));
        let sessions =
            || [session("6b1f0e92d7c4", None, "make -j4"), session("2c8e91a0f3d5", Some("nightly"), "cc \x1b[2J")];
        let used = |memory, cpu_seconds| UsedNow { processes: 3, memory, cpu_seconds };
        let start = Instant::now();
        let take = |top: &mut Top, used: [UsedNow; 2], at| top.take(sessions().into_iter().zip(used).collect(), at);
        take(&mut top, [used(5 << 20, 1.0), used(9 << 20, 4.0)], start);
        take(&mut top, [used(5 << 20, 2.0), used(9 << 20, 4.5)], start + Duration::from_secs(2));
        let text = drawn(&top);
        let at = |text: &str, what: &str| text.find(what).unwrap_or_else(|| panic!("`{what}` is not in:\n{text}"));
        assert!(text.contains("2 sessions, 75 % of a CPU, 14 MiB") && !text.contains('\x1b'), "{text}");
        assert!(
            at(&text, "50.0") < at(&text, "25.0") && at(&text, "make -j4  in project") < at(&text, "nightly"),
            "{text}"
        );
        top.key(KeyCode::Char('m'));
        let text = drawn(&top);
        assert!(at(&text, "nightly") < at(&text, "make"), "{text}");
    }
}
