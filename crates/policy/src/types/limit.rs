//! The limits of a policy. Owns the type, whose fields are the rows of the table `limits`; what enforces each is the plan's
//! business. Part of `types::policy::Policy`.

use std::time::Duration;

use serde::Serialize;

use crate::types::origin::Ruled;
use crate::types::table::settings;

/// Takes the rows of `limits` and `limits.io`, and passes over the tables before them.
macro_rules! limits {
    ($(#[$about:meta])* LimitsTable $table:literal $prefix:literal {
        $($(#[$help:meta])+ $key:ident: $notation:ty => $variant:ident($kept:ty) in limits.$field:ident
            $(, least $least:expr => $expected:expr)*;)+
    } lists { $($lists:tt)* }
    $(#[$about_io:meta])* IoTable $table_io:literal $prefix_io:literal {
        $($(#[$help_io:meta])+ $key_io:ident: $notation_io:ty => $variant_io:ident($kept_io:ty) in limits.$field_io:ident
            $(, least $least_io:expr => $expected_io:expr)*;)+
    } lists { $($lists_io:tt)* }
    $($rest:tt)*) => {
        /// How much of the machine a session may use. Nothing here is a promise.
        #[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize)]
        pub struct Limits {
            $($(#[$help])+ pub $field: Option<Ruled<$kept>>,)+
            $($(#[$help_io])+ pub $field_io: Option<Ruled<$kept_io>>,)+
        }
    };
    ($(#[$about:meta])* $struct:ident $table:literal $prefix:literal { $($rows:tt)* } lists { $($lists:tt)* } $($rest:tt)*) => {
        limits! { $($rest)* }
    };
}

settings!(limits);
