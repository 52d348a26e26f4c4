//! Times on the reader's clock.

use js_sys::{Date, Object};

/// Formats the time of day: `14:03:20`.
pub fn time_of_day(unix_millis: f64) -> String {
    let date = Date::new(&unix_millis.into());
    format!("{:02}:{:02}:{:02}", date.get_hours(), date.get_minutes(), date.get_seconds())
}

/// Formats the date in the reader's locale, and the time of day.
pub fn date_and_time(unix_millis: u64) -> String {
    let millis = unix_millis as f64;
    let date = Date::new(&millis.into()).to_locale_date_string("default", &Object::new());
    format!("{}, {}", String::from(date), time_of_day(millis))
}
