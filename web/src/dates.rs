//! Times on the reader's clock.

use js_sys::Date;

/// The months, in short. A date in digits reads differently in different countries.
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Formats the time of day: `14:03:20`.
pub fn time_of_day(unix_millis: f64) -> String {
    let date = Date::new(&unix_millis.into());
    format!("{:02}:{:02}:{:02}", date.get_hours(), date.get_minutes(), date.get_seconds())
}

/// Formats the date and the time of day: `21 Sep 2026, 14:03:20`.
pub fn date_and_time(unix_millis: u64) -> String {
    let millis = unix_millis as f64;
    let date = Date::new(&millis.into());
    let month = MONTHS.get(date.get_month() as usize).copied().unwrap_or_default();
    format!("{} {month} {}, {}", date.get_date(), date.get_full_year(), time_of_day(millis))
}
