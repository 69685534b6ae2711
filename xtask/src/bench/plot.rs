//! A plot as SVG: for each row how many times the peer's speed ours has, on a logarithmic scale, with the
//! spread of the pairs, the bar it has to reach, and where the floor lies.

use super::row::Row;
use std::fmt::Write;

const LABEL_WIDTH: f64 = 430.0;
const PLOT_WIDTH: f64 = 460.0;
const VALUE_WIDTH: f64 = 150.0;
const ROW_HEIGHT: f64 = 26.0;
const TOP: f64 = 74.0;
const BOTTOM: f64 = 34.0;

/// Where ratios lie on the axis.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    /// Covers everything that is drawn, in whole powers of ten.
    fn of(rows: &[&Row]) -> Scale {
        let drawn = rows.iter().flat_map(|row| {
            let spread = row.ratio.map_or([1.0, 1.0], |r| [r.least, r.most]);
            [spread[0], spread[1], row.bar.unwrap_or(1.0), row.floor_ratio().unwrap_or(1.0)]
        });
        let drawn: Vec<f64> = drawn.filter(|ratio| ratio.is_finite() && *ratio > 0.0).collect();
        let low = drawn.iter().copied().fold(1.0, f64::min).log10().floor();
        let high = drawn.iter().copied().fold(10.0, f64::max).log10().ceil();
        Scale { low, high }
    }

    fn x(&self, ratio: f64) -> f64 {
        let share = (ratio.max(f64::MIN_POSITIVE).log10() - self.low) / (self.high - self.low);
        LABEL_WIDTH + share.clamp(0.0, 1.0) * PLOT_WIDTH
    }
}

/// Draws rows under a title.
pub(crate) fn draw(title: &str, rows: &[&Row]) -> String {
    let scale = Scale::of(rows);
    let bottom = TOP + rows.len() as f64 * ROW_HEIGHT;
    let (width, height) = (LABEL_WIDTH + PLOT_WIDTH + VALUE_WIDTH, bottom + BOTTOM);
    let mut out = String::new();
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"system-ui, sans-serif\" \
         font-size=\"12\" fill=\"#1b2733\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"16\" y=\"26\" font-size=\"16\" font-weight=\"600\">{}</text>\n",
        escaped(title)
    );
    legend(&mut out);
    let mut power = scale.low;
    while power <= scale.high {
        let x = scale.x(10_f64.powf(power));
        let (colour, thick) = if power == 0.0 { ("#5b6b7a", 1.5) } else { ("#dde3e9", 1.0) };
        let label = if power == 0.0 { "the peer".to_owned() } else { format!("{}x", 10_f64.powf(power)) };
        let _ = write!(
            out,
            "<path d=\"M{x:.1} {TOP}V{bottom}\" stroke=\"{colour}\" stroke-width=\"{thick}\"/>\n\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#5b6b7a\">{label}</text>\n",
            bottom + 18.0
        );
        power += 1.0;
    }
    for (n, row) in rows.iter().enumerate() {
        bar(&mut out, row, &scale, TOP + n as f64 * ROW_HEIGHT);
    }
    out.push_str("</svg>\n");
    out
}

fn legend(out: &mut String) {
    let keys = [
        ("#2a9d8f", "ours, bar reached"),
        ("#e07a3f", "ours, short of its bar"),
        ("#7d93ab", "ours, no bar"),
    ];
    let mut x = 16.0;
    for (colour, label) in keys {
        let _ = write!(
            out,
            "<rect x=\"{x}\" y=\"42\" width=\"12\" height=\"12\" rx=\"2\" fill=\"{colour}\"/>\n\
             <text x=\"{}\" y=\"52\">{label}</text>\n",
            x + 18.0
        );
        x += 160.0;
    }
    let _ = write!(
        out,
        "<path d=\"M{0} 40v16\" stroke=\"#1b2733\" stroke-width=\"2.5\"/>\n<text x=\"{1}\" y=\"52\">bar</text>\n\
         <path d=\"M{2} 43l5 5l-5 5l-5 -5z\" fill=\"#8e44ad\"/>\n<text x=\"{3}\" y=\"52\">floor</text>\n",
        x + 6.0,
        x + 18.0,
        x + 66.0,
        x + 78.0
    );
}

fn bar(out: &mut String, row: &Row, scale: &Scale, top: f64) {
    let middle = top + ROW_HEIGHT / 2.0;
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
        LABEL_WIDTH - 10.0,
        middle + 4.0,
        escaped(&row.work)
    );
    let Some(ratio) = row.ratio else { return };
    let (from, to) = (scale.x(1.0), scale.x(ratio.median));
    let colour = match row.met() {
        Some(true) => "#2a9d8f",
        Some(false) => "#e07a3f",
        None => "#7d93ab",
    };
    let _ = write!(
        out,
        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"14\" rx=\"2\" fill=\"{colour}\"/>\n\
         <path d=\"M{:.1} {middle:.1}H{:.1}\" stroke=\"#1b2733\" stroke-opacity=\"0.55\"/>\n",
        from.min(to),
        middle - 7.0,
        (to - from).abs().max(1.0),
        scale.x(ratio.least),
        scale.x(ratio.most)
    );
    if let Some(bar) = row.bar {
        let x = scale.x(bar);
        let _ = writeln!(
            out,
            "<path d=\"M{x:.1} {:.1}v20\" stroke=\"#1b2733\" stroke-width=\"2.5\"/>",
            middle - 10.0
        );
    }
    if let Some(floor) = row.floor_ratio() {
        let x = scale.x(floor);
        let _ = writeln!(out, "<path d=\"M{x:.1} {:.1}l5 5l-5 5l-5 -5z\" fill=\"#8e44ad\"/>", middle - 5.0);
    }
    let wanted = row.bar.map_or_else(String::new, |bar| format!(" of {bar}"));
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" font-weight=\"600\">{:.2}x<tspan font-weight=\"400\" fill=\"#5b6b7a\">{wanted}</tspan></text>",
        LABEL_WIDTH + PLOT_WIDTH + 12.0,
        middle + 4.0,
        ratio.median
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::sample;
    use super::*;

    #[test]
    fn the_scale_is_logarithmic_and_covers_what_is_drawn() {
        let row = Row { bar: Some(40.0), ..sample() };
        let scale = Scale::of(&[&row]);
        assert_eq!((scale.low, scale.high), (0.0, 2.0));
        assert_eq!(scale.x(10.0), LABEL_WIDTH + PLOT_WIDTH / 2.0);
        assert_eq!((scale.x(0.0), scale.x(1e9)), (LABEL_WIDTH, LABEL_WIDTH + PLOT_WIDTH));
    }

    #[test]
    fn every_row_has_its_bar_its_spread_and_its_marks() {
        let unmet = Row { bar: Some(9.0), work: "a <small> one".into(), ..sample() };
        let drawn = draw("ours & theirs", &[&sample(), &unmet, &Row { ratio: None, ..sample() }]);
        assert!(drawn.starts_with("<svg") && drawn.ends_with("</svg>\n"));
        assert!(drawn.contains("ours &amp; theirs") && drawn.contains("a &lt;small&gt; one"));
        assert_eq!(drawn.matches("font-weight=\"600\">3.00x").count(), 2);
        assert_eq!(drawn.matches("fill=\"#e07a3f\"").count(), 2, "one in the legend, one in the plot");
        assert_eq!(drawn.matches("fill=\"#8e44ad\"").count(), 3);
    }
}
