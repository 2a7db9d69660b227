//! The flags about the policy, made of the policy's own table. Owns how the command line is read and what a path on it means;
//! names, notations and help are `policy::BY_HAND`'s. Used by `run`, `learn`, `explain` and `why`.

use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};
use cofferdam_policy::{BY_HAND, ByHand, NetworkMode, Ruled, Setting};
use cofferdam_wire::order::Given;

use crate::args::flag::FlagError;

/// What was given, in the order of the table.
#[derive(Debug, Clone, Default)]
pub(crate) struct PolicyArgs(Vec<(&'static ByHand, OsString)>);

impl PolicyArgs {
    /// The last value of a flag.
    pub(crate) fn value(&self, flag: &str) -> Option<&OsStr> {
        self.0.iter().rev().find(|(by_hand, _)| by_hand.flag == flag).map(|(_, value)| value.as_os_str())
    }

    /// With this value of a flag that was not given.
    pub(crate) fn with(mut self, flag: &str, value: &str) -> Self {
        if self.value(flag).is_none() {
            self.0.extend(BY_HAND.iter().find(|by_hand| by_hand.flag == flag).map(|by_hand| (by_hand, value.into())));
        }
        self
    }

    /// As an order says it.
    pub(crate) fn given(&self) -> Vec<Given> {
        let given =
            |(by_hand, value): &(&ByHand, OsString)| Given { flag: by_hand.flag.to_owned(), value: value.clone() };
        self.0.iter().map(given).collect()
    }

    pub(crate) fn of(flags: Vec<Given>) -> Result<Self, FlagError> {
        let known = |Given { flag, value }| {
            let by_hand = BY_HAND.iter().find(|by_hand| by_hand.flag == flag);
            Ok((by_hand.ok_or_else(|| FlagError::new("flags", &flag, "`sandbox run --help` lists them"))?, value))
        };
        flags.into_iter().map(known).collect::<Result<_, _>>().map(PolicyArgs)
    }

    pub(crate) fn settings(&self, cwd: &Path) -> Result<Vec<Ruled<Setting>>, FlagError> {
        let mode = self.value("--network");
        if let Some(host) = self.value("--allow-host").filter(|_| mode == Some(OsStr::new("none"))) {
            let hint = format!("`--network {}` reaches no host: leave one of the two out", NetworkMode::None);
            return Err(FlagError::new("--allow-host", &host.to_string_lossy(), hint));
        }
        let setting = |(by_hand, value): &(&'static ByHand, OsString)| {
            let given = if by_hand.is_path() { as_typed(cwd, Path::new(value)).into() } else { value.clone() };
            let wrong =
                |why: cofferdam_policy::NoValue| FlagError::new(by_hand.flag, &value.to_string_lossy(), why.hint());
            by_hand.of_flag(&given).map_err(wrong)
        };
        self.0.iter().map(setting).collect()
    }
}

impl Args for PolicyArgs {
    fn augment_args(command: Command) -> Command {
        command.args(BY_HAND.iter().map(arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for PolicyArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given = Vec::new();
        for by_hand in BY_HAND {
            match by_hand.switch {
                Some(value) if matches.get_flag(by_hand.flag) => given.push((by_hand, value.into())),
                Some(_) => {}
                None => {
                    let values = matches.get_raw(by_hand.flag).into_iter().flatten();
                    given.extend(values.map(|value| (by_hand, value.to_owned())));
                }
            }
        }
        Ok(PolicyArgs(given))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn arg(by_hand: &'static ByHand) -> Arg {
    let arg = Arg::new(by_hand.flag).long(by_hand.flag.trim_start_matches('-')).help(by_hand.help);
    let arg = match by_hand.heading {
        Some(heading) => arg.help_heading(heading),
        None => arg,
    };
    if by_hand.switch.is_some() {
        return arg.action(ArgAction::SetTrue);
    }
    let action = if by_hand.is_list { ArgAction::Append } else { ArgAction::Set };
    let arg = arg.value_name(by_hand.value).action(action);
    if by_hand.is_path() { arg.value_parser(value_parser!(PathBuf)) } else { arg }
}

/// Paths of flags are meant as the shell means them, relative to the working directory. They stay as they were typed, but for
/// `..`: what a link leads them to, and whether it may, is the survey's to say.
fn as_typed(cwd: &Path, path: &Path) -> PathBuf {
    let absolute = cwd.join(path);
    let goes_up = absolute.components().any(|part| part == Component::ParentDir);
    if absolute.components().next_back() == Some(Component::ParentDir) {
        return absolute.canonicalize().unwrap_or(absolute);
    }
    let parent = absolute.parent().filter(|_| goes_up).and_then(|parent| parent.canonicalize().ok());
    parent.zip(absolute.file_name()).map(|(parent, name)| parent.join(name)).unwrap_or(absolute)
}
