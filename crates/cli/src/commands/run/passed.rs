//! Descriptors that `--fd` hands to the command. Owns which are taken and the hint about one that was not named; keeping them open is
//! `launcher`'s. Called by `run`.

use cofferdam_host::flags::FlagError;
use cofferdam_supervisor::why_not_passed;

use crate::args::run::RunArgs;

/// Before this process opens anything: what is open then was inherited.
pub(super) fn check(numbers: &[i32]) -> Result<(), FlagError> {
    let refused = numbers.iter().find_map(|number| Some((number, why_not_passed(*number)?)));
    refused.map_or(Ok(()), |(number, why)| {
        Err(FlagError::new("--fd", &number.to_string(), format!("{why}; only pipes without a name are passed on")))
    })
}

/// A command that was told to open a descriptor which stayed outside fails with words of its own.
pub(super) fn missed(args: &RunArgs) -> Option<String> {
    let number = |word: &String| {
        let rest = ["/dev/fd/", "/proc/self/fd/"].iter().find_map(|place| word.strip_prefix(place))?;
        rest.parse::<i32>().ok().filter(|number| *number > 2 && !args.descriptors.contains(number))
    };
    let number = args.argv.iter().find_map(number)?;
    let word = args.argv.iter().find(|word| word.ends_with(&number.to_string()))?;
    why_not_passed(number).is_none().then(|| format!("{word} was not passed on to the command; --fd {number}"))
}
