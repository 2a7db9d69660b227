//! The flags about the policy, made of the policy's own table. Owns how the command line is read; names, notations and help are
//! `policy::BY_HAND`'s, what the values mean is `host::flags`'s. Used by `run`, `learn`, `explain` and `why`.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};
use cofferdam_policy::{BY_HAND, ByHand};
use cofferdam_wire::order::Given;

/// What was given, in the order of the table.
#[derive(Debug, Clone, Default)]
pub(crate) struct PolicyArgs(pub(crate) Vec<Given>);

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
            let with = |value| Given { flag: by_hand.flag.to_owned(), value };
            match by_hand.switch.filter(|_| by_hand.value.is_empty()) {
                Some(value) if matches.get_flag(by_hand.flag) => given.push(with(value.into())),
                Some(_) => {}
                None => {
                    let values = matches.get_raw(by_hand.flag).into_iter().flatten();
                    given.extend(values.map(|value| with(value.to_owned())));
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
    let arg = match by_hand.switch {
        Some(_) if by_hand.value.is_empty() => return arg.action(ArgAction::SetTrue),
        // The next word is the command's, so a value stands behind `=`.
        Some(alone) => arg.num_args(0..=1).require_equals(true).default_missing_value(alone),
        None => arg,
    };
    let action = if by_hand.is_list { ArgAction::Append } else { ArgAction::Set };
    let arg = arg.value_name(by_hand.value).action(action);
    if by_hand.is_path() { arg.value_parser(value_parser!(PathBuf)) } else { arg }
}
